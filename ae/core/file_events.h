// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What all implementations of EventLoop use for file events: a check of the arguments, and the
// delay after which a loop tries again to watch a descriptor.

#include <cerrno>
#include <chrono>
#include <system_error>

#include "ae/abi.h"
#include "ae/event_loop.h"

namespace ae { inline namespace AECONN_ABI {

/// Checks the arguments of add_file_event(); used by every implementation of EventLoop. Throws
/// LoopError if they are invalid.
inline void check_file_event(int fd, Mask mask, const FileHandler& handler) {
  if (fd < 0) throw LoopError("a file event needs a descriptor, not a negative number");
  if ((mask & (kReadable | kWritable)) == 0)
    throw LoopError("a file event needs kReadable or kWritable");
  if (!handler) throw LoopError("a file event needs a handler");
}
[[noreturn]] inline void refuse_closed_descriptor() {
  throw std::system_error(EBADF, std::generic_category(), "file event on a closed descriptor");
}

/// The delay after which a loop tries again to watch a descriptor that the kernel has refused for
/// lack of resources.
inline constexpr Duration kFileEventRetry = std::chrono::milliseconds(100);

}}  // namespace ae
