// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One of our receive windows: its memory, how many bytes the peer has written into it, and how many
// of these the user has read.

#include <cstddef>
#include <cstdint>

#include "ae/abi.h"
#include "ae/time.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Memory that the peer may write into once it is offered. The stream uses it from
/// StreamReceiver::provide_window() until take_discarded() returns it or leave_windows() is called.
/// The peer may claim to have written bytes that it never wrote, so the memory must be filled with
/// zeros when it is provided: it must never contain bytes of another connection.
struct WindowBuffer {
  std::byte* data = nullptr;
  std::uint32_t length = 0;
  std::uint32_t key = 0;  ///< the rkey with which the peer may write into the memory
  /// Start of the memory as a remote address, for the peer's RDMA writes.
  std::uint64_t address = 0;
  /// Set by the caller, to find the owner of the memory when it is returned; not used by the
  /// stream.
  void* owner = nullptr;
  explicit operator bool() const noexcept { return data != nullptr; }
};

struct WindowRecord {
  WindowBuffer buffer;
  std::uint32_t filled = 0, read = 0;
  // Number of bytes that the peer writes into the window in all: the length of the buffer, or less
  // if the peer has changed to another window before this one was full.
  std::uint32_t end = 0;
  // Size in bytes of the peer's first write into the window. The write arrived at first_at.
  std::uint32_t first = 0;
  // Number of our message that announced the window to the peer, counted from 1.
  std::uint64_t announced_by = 0;
  ae::TimePoint announced_at{}, first_at{};
  bool in_line = false;
  // True for memory that ReceiveWindowQueue::become() was given. It holds unread bytes and is never
  // offered to the peer.
  bool left_over = false;
  bool full() const noexcept { return filled == end; }
  std::uint32_t unread() const noexcept { return filled - read; }
};

}}}  // namespace conn::rdma
