// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One receive window of ours: its memory, and how far the peer has filled it and the user read it.

#include <cstddef>
#include <cstdint>

#include "ae/abi.h"
#include "ae/time.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Memory of ours that the peer may write into once it is offered. The stream borrows it from
/// provide_window() until take_discarded() returns it or leave_windows() is called. The peer may
/// claim to have written bytes that it never wrote, so the memory must hold zeros when it is
/// provided, never the bytes of another connection.
struct WindowBuffer {
  std::byte* data = nullptr;
  std::uint32_t length = 0;
  std::uint32_t key = 0;      ///< the rkey with which the peer may write into the memory
  std::uint64_t address = 0;  ///< start of the memory, as the peer addresses it in its RDMA writes
  /// Pointer that the caller sets to recognize the memory when it is returned; not used by the
  /// stream.
  void* owner = nullptr;
  explicit operator bool() const noexcept { return data != nullptr; }
};

struct WindowRecord {
  WindowBuffer buffer;
  std::uint32_t filled = 0, read = 0;
  // Number of bytes that the peer will fill: the length of the buffer, or less if the peer has left
  // the window.
  std::uint32_t end = 0;
  // Size in bytes of the peer's first write into the window, which arrived at first_at.
  std::uint32_t first = 0;
  // Number of our message that announced the window to the peer, counted from 1.
  std::uint64_t announced_by = 0;
  ae::TimePoint announced_at{}, first_at{};
  bool in_line = false;
  // True for memory that ReceiveWindowQueue::become() was given: it is not offered again.
  bool left_over = false;
  bool full() const noexcept { return filled == end; }
  std::uint32_t unread() const noexcept { return filled - read; }
};

}}}  // namespace conn::rdma
