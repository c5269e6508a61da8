// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the calling thread's socket calls moved, from where and to where; and what they may be made
// to do that the kernel does seldom, or not on this machine. The functions that stand in for them
// are part of every program that this is linked to.

#include <sys/types.h>

#include <cstddef>
#include <string_view>
#include <vector>

namespace testing {

class SocketCalls {
 public:
  struct Piece {
    const void* data;
    std::size_t size;  ///< of which the call may have moved less
    bool sent;         ///< received otherwise
    int call;          ///< pieces of one call have one number
    int flags;
    ssize_t result;
  };
  SocketCalls();
  SocketCalls(const SocketCalls&) = delete;
  SocketCalls& operator=(const SocketCalls&) = delete;
  ~SocketCalls();

  std::vector<Piece> pieces;
  int calls = 0;
  int completions = 0;       ///< messages of the error queue
  bool hide_copies = false;  ///< the kernel does not say that it copied
  int refuse_zero_copy = 0;  ///< so many calls with MSG_ZEROCOPY fail with ENOBUFS
  /// Calls that sent something with MSG_ZEROCOPY, or without.
  int sends(bool zero_copy) const;
};

}  // namespace testing
