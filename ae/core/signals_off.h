// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// For starting threads of the library: the program's signal handlers must run only on the program's
// own threads.

#include <pthread.h>
#include <signal.h>

#include <array>

#include "ae/abi.h"

namespace ae { inline namespace AECONN_ABI {

/// While an instance exists, threads that this thread starts block all signals except those raised
/// by their own faults (such as SIGSEGV).
class SignalsOff {
 public:
  SignalsOff() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : std::array{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT})
      sigdelset(&all, fault);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsOff() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsOff(const SignalsOff&) = delete;
  SignalsOff& operator=(const SignalsOff&) = delete;

 private:
  sigset_t before_{};
};

}}  // namespace ae
