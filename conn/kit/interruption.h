// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Controls what a blocking call does when a signal handler ran while it waited. It continues to
// wait, unless its thread has set a callback that can end it: for an interpreter that wants to
// raise an exception, for example.

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// State of the calling thread.
class Interruption {
 public:
  /// Returns nonzero if the call must end with EINTR.
  using Ask = int (*)(void* context);
  /// Sets the callback; null removes it.
  static void ask(Ask ask, void* context) noexcept;

  /// Marks a blocking call made by the program; may be nested. Outside of it the callback does not
  /// run.
  class Scope {
   public:
    Scope() noexcept;
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };
  /// Call after EINTR from a wait: returns whether to give up. Once true, it stays true until the
  /// blocking call ends.
  static bool came() noexcept;
  /// Whether the blocking call must end.
  static bool ends() noexcept;
};

}}  // namespace conn
