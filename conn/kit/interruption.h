// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a blocking call does when a signal handler has run while it waited. It goes on waiting,
// unless its thread has said whom to ask: an interpreter, say, which may want to raise.

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// Of this thread.
class Interruption {
 public:
  /// Not 0: the call is to end with EINTR.
  using Ask = int (*)(void* context);
  /// Whom to ask; null: nobody.
  static void ask(Ask ask, void* context) noexcept;

  /// A blocking call of the user's, which may be inside another. Elsewhere nobody is asked.
  class Scope {
   public:
    Scope() noexcept;
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };
  /// For what waits, after EINTR: whether to give up. Once it is so it stays so until the call
  /// ends.
  static bool came() noexcept;
  /// Whether the call is to end.
  static bool ends() noexcept;
};

}}  // namespace conn
