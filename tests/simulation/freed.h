// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Checks at the end of a test that a simulated world has no objects left.

#include <chrono>

#include "tests/simulation/objects.h"
#include "tests/simulation/world.h"
#include "tests/support/catch.h"

namespace simulation {

/// Lets the time-outs of the world's kernel pass, and checks that all of its objects have been
/// freed. All loops that used it must have ended.
inline void check_all_freed(World& world) {
  world.advance(world.now() + std::chrono::seconds(110));
  world.let_orphans_go();
  for (const auto& [kind, number] : world.objects()) {
    UNSCOPED_INFO("left behind: " << number << ' ' << kind);
    CHECK(number == 0);
  }
}

}  // namespace simulation
