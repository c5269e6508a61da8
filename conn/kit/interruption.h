// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Interruption: decides what a blocking call of the library does when a signal handler has run
// while the call waited. The call continues to wait, unless its thread has set a callback, and the
// callback says that the call must end. For example, a language interpreter sets such a callback in
// order to raise an exception.

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// Decides, for the calling thread, whether a signal ends its blocking calls with EINTR.
class Interruption {
 public:
  /// A function that returns nonzero if the blocking call in progress must end with EINTR.
  using Ask = int (*)(void* context);
  /// Sets the function that decides whether a signal ends the blocking calls of the calling thread;
  /// null: no signal ends them.
  static void ask(Ask ask, void* context) noexcept;

  /// Exists during a blocking call that the program has made; calls may be nested. The callback
  /// runs only while a Scope exists.
  class Scope {
   public:
    Scope() noexcept;
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };
  /// To be called after a wait has failed with EINTR. Runs the callback, and returns whether the
  /// blocking call must end. Once the result is true, it stays true until the outermost blocking
  /// call ends.
  static bool came() noexcept;
  /// Returns whether came() has already found that the current blocking call must end.
  static bool ends() noexcept;
};

}}  // namespace conn
