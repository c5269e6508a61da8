// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pthread.h>

#include <csignal>

namespace testing {

/// Restores the thread's signal mask at its end: a Stop that was signalled leaves its signals
/// blocked, and the next test shall find them as they were.
struct SignalMask {
  SignalMask() = default;
  SignalMask(const SignalMask&) = delete;
  SignalMask& operator=(const SignalMask&) = delete;
  ~SignalMask() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
  const sigset_t before = [] {
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, nullptr, &now);
    return now;
  }();
};

}  // namespace testing
