// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Our receive windows of one stream, in the order in which the peer fills them:
//
//     [ full, being read ][ full ]   [ filled ..... ][ announced ][ to be announced ]
//       front                          current                      last
//
// Outside the line there are spare windows: read to their end, or not needed yet. Stream decides
// how many windows there are and how long; the peer's values come here only after Stream's checks.

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ae/abi.h"
#include "ae/time.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Memory of ours that the peer may write once it is offered. The stream borrows it from
/// provide_window() until take_discarded() returns it or leave_windows() is called. The peer may
/// claim bytes that it never wrote, so the memory must hold zeros before, never another
/// connection's bytes.
struct WindowBuffer {
  std::byte* data = nullptr;
  std::uint32_t length = 0;
  std::uint64_t address = 0;  ///< address that the peer uses
  std::uint32_t key = 0;      ///< rkey
  void* owner = nullptr;      ///< lets the provider identify it
  explicit operator bool() const noexcept { return data != nullptr; }
};

class ReceiveWindowQueue {
 public:
  static constexpr std::size_t kSlots = 8;

  struct Window {
    WindowBuffer buffer;  // null data: the slot is free
    std::uint32_t filled = 0, read = 0;
    // Bytes the peer will fill: the buffer's length, or less if it left the window.
    std::uint32_t end = 0;
    std::uint64_t announced_by = 0;  // number of our message that announced it
    ae::TimePoint announced_at{}, first_at{};
    std::uint32_t first = 0;  // size of the first write, at first_at
    bool in_line = false;
    bool full() const noexcept { return filled == end; }
  };

  // --- how many ----------------------------------------------------------------------------------
  std::size_t held() const noexcept { return held_; }    ///< including spare windows
  std::size_t count() const noexcept { return count_; }  ///< in the line
  std::size_t full() const noexcept { return full_; }    ///< of count(): full and not read out
  bool has_spare() const noexcept { return held_ != count_; }
  /// Windows that the peer has or will get, without those that are full or that it is to leave.
  std::size_t outstanding() const noexcept { return count_ - (leaving() ? leave_ : full_); }
  std::uint64_t bytes() const noexcept;
  /// Length of the longest outstanding window; 0: none is outstanding.
  std::uint32_t longest_outstanding() const noexcept;

  // --- memory comes and goes ---------------------------------------------------------------------
  /// Appends to the line, to be announced. There must be a free slot.
  void add(const WindowBuffer& buffer) noexcept;
  /// Puts another window in place of the last one, which must not have been announced.
  void replace_last(const WindowBuffer& buffer) noexcept;
  /// Appends a spare window of this length, or of any length (0). False: there is none.
  bool add_spare(std::uint32_t length) noexcept;
  bool has_spare_of(std::uint32_t length) const noexcept { return find_spare(length) != kSlots; }
  /// Takes out a spare window of another length, or of any length (0). Empty: there is none.
  WindowBuffer take_spare_but(std::uint32_t length) noexcept;
  /// Replaces all windows by `unread`, in one piece; if that is empty, everything has been read.
  void become(std::span<std::byte> unread) noexcept;

  // --- telling the peer --------------------------------------------------------------------------
  bool to_announce() const noexcept { return unposted_ != 0; }
  std::size_t unannounced() const noexcept { return unposted_; }
  // Of the windows to be announced, number `i`, from 0 to unannounced() - 1. The answers assume
  // that those before it have been announced.
  const WindowBuffer& to_announce(std::size_t i) const noexcept {
    return at(count_ - unposted_ + i).buffer;
  }
  /// The peer then has another window that is not full.
  bool is_ahead(std::size_t i) const noexcept { return count_ - unposted_ + i > full_; }
  /// The windows before it are to be left for it.
  bool is_marked(std::size_t i) const noexcept {
    return leaving() && count_ - unposted_ + i == leave_;
  }
  void announced(std::uint64_t message, ae::TimePoint now) noexcept;
  /// Drops all pending announcements: to_announce() is false afterwards.
  void announce_nothing() noexcept;

  // --- the peer writes ---------------------------------------------------------------------------
  /// The window that the peer is writing, or null.
  const Window* current() const noexcept {
    if (full_ >= count_ - unposted_ || full_ == leave_) return nullptr;
    return &at(full_);
  }
  /// Records `length` bytes, which must fit, in the current window. True: it is now full.
  bool fill(std::uint32_t length, ae::TimePoint now) noexcept {
    Window& window = at(full_);
    assert(length <= window.end - window.filled);
    if (window.filled == 0) {
      window.first = length;
      window.first_at = now;
    }
    window.filled += length;
    if (!window.full()) return false;
    ++full_;
    return true;
  }
  /// The next window to be added is to be used although those before it are not full.
  void leave() noexcept { leave_ = static_cast<std::uint8_t>(count_); }
  bool leaving() const noexcept { return leave_ != kNotLeaving; }
  /// The peer has left those windows; what it wrote into them can be read.
  void left() noexcept;

  // --- the user reads ----------------------------------------------------------------------------
  bool has_unread() const noexcept { return count_ != 0 && at(0).read < at(0).filled; }
  std::uint64_t unread_bytes() const noexcept;
  /// The oldest unread bytes, as far as they are contiguous.
  std::span<std::byte> unread() const noexcept {
    if (count_ == 0) return {};
    const Window& window = at(0);
    return {window.buffer.data + window.read, window.filled - window.read};
  }
  /// The oldest unread pieces, as many as `pieces` can hold; returns their number.
  std::size_t peek(std::span<std::span<const std::byte>> pieces) const noexcept;
  /// The first `size` bytes of unread() were read. True: that was the end of a window.
  bool consume(std::size_t size) noexcept {
    if (size == 0) return false;
    Window& window = at(0);
    assert(size <= window.filled - window.read);
    window.read += static_cast<std::uint32_t>(size);
    if (full_ == 0 || window.read != window.filled) return false;
    remove(0);
    return true;
  }
  void copy_unread(std::byte* into) const noexcept;

  void check() const;

 private:
  static constexpr std::uint8_t kNotLeaving = 0xff;
  Window& at(std::size_t place) noexcept { return windows_[line_[place]]; }
  const Window& at(std::size_t place) const noexcept { return windows_[line_[place]]; }
  std::size_t find_spare(std::uint32_t length) const noexcept;
  void append(std::size_t slot) noexcept;
  void remove(std::size_t place) noexcept;

  std::array<Window, kSlots> windows_;
  std::array<std::uint8_t, kSlots> line_{};  // slot numbers, oldest first
  std::uint8_t held_ = 0, count_ = 0;
  std::uint8_t full_ = 0;             // number of full windows, at the front of the line
  std::uint8_t unposted_ = 0;         // number of windows not yet announced, at its end
  std::uint8_t leave_ = kNotLeaving;  // number of windows to be left, at its front
};

}}}  // namespace conn::rdma
