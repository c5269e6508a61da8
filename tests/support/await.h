// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/testing.h"

namespace testing {

/// Waits for other threads, without a loop of its own.
template <class Condition>
void await(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + patience();
  while (!condition()) {
    REQUIRE(std::chrono::steady_clock::now() < end);
    std::this_thread::yield();
  }
}

}  // namespace testing
