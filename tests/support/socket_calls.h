// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Records what the calling thread's socket calls transfer, and from and to where; can also make
// them behave as the kernel seldom does, or not on this machine. Each program that links this uses
// the replaced functions.

#include <sys/types.h>

#include <cstddef>
#include <string_view>
#include <vector>

namespace testing {

class SocketCalls {
 public:
  struct Piece {
    const void* data;
    std::size_t size;  ///< as asked; the call may have transferred less
    bool sent;         ///< false: received
    int call;          ///< number of the call, the same for all its pieces
    int flags;
    ssize_t result;
  };
  SocketCalls();
  SocketCalls(const SocketCalls&) = delete;
  SocketCalls& operator=(const SocketCalls&) = delete;
  ~SocketCalls();

  std::vector<Piece> pieces;
  int calls = 0;
  int completions = 0;        ///< messages read from the error queue
  bool hide_copies = false;   ///< hides that the kernel made a copy
  int refuse_zero_copy = 0;   ///< this many calls with MSG_ZEROCOPY fail with ENOBUFS
  void (*after)() = nullptr;  ///< called after each call; may change errno
  /// The number of calls that sent something with MSG_ZEROCOPY, or without.
  int sends(bool zero_copy) const;
};

}  // namespace testing
