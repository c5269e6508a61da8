// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Our receive windows of one stream, in the order in which the peer fills them:
//
//     [ full, being read ][ full ]   [ filled ..... ][ announced ][ to be announced ]
//       front                          current                      last
//
// Outside this line there are spare windows: those that were read to their end, and those not
// needed yet. Inbound decides how many windows there are and how long; values from the peer are
// passed to this class only after Inbound has checked them.

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

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
  std::uint64_t address = 0;  ///< the address that the peer uses for it
  std::uint32_t key = 0;      ///< the rkey
  void* owner = nullptr;      ///< set by the provider, which recognizes the memory by it
  explicit operator bool() const noexcept { return data != nullptr; }
};

class ReceiveWindowQueue {
 public:
  static constexpr std::size_t kSlots = 8;

  struct Window {
    WindowBuffer buffer;  // the window's memory; its data is null if the slot is free
    std::uint32_t filled = 0, read = 0;
    // Number of bytes that the peer will fill: the length of the buffer, or less if the peer has
    // left the window.
    std::uint32_t end = 0;
    std::uint64_t announced_by = 0;  // number of our message that announced the window
    ae::TimePoint announced_at{}, first_at{};
    std::uint32_t first = 0;  // size of the peer's first write into the window, at first_at
    bool in_line = false;
    bool full() const noexcept { return filled == end; }
  };

  // --- numbers of windows ------------------------------------------------------------------------
  std::size_t held() const noexcept { return held_; }  ///< number of windows, including spare ones
  std::size_t count() const noexcept { return count_; }  ///< number of windows in the line
  /// Number of windows in the line that are full and not read out.
  std::size_t full() const noexcept { return full_; }
  bool has_spare() const noexcept { return held_ != count_; }
  /// Returns the number of windows that the peer has or will get, without those that are full or
  /// that it is to leave.
  std::size_t outstanding() const noexcept { return count_ - (leaving() ? leave_ : full_); }
  std::uint64_t bytes() const noexcept;
  /// Returns the length of the longest outstanding window; 0: none is outstanding.
  std::uint32_t longest_outstanding() const noexcept;

  // --- adding and removing window memory ---------------------------------------------------------
  /// Appends a window to the line, to be announced. There must be a free slot.
  void add(const WindowBuffer& buffer) noexcept;
  /// Replaces the last window by another one. The last window must not have been announced.
  void replace_last(const WindowBuffer& buffer) noexcept;
  /// Appends a spare window of this length, or of any length (0), to the line. Returns false if
  /// there is none.
  bool add_spare(std::uint32_t length) noexcept;
  bool has_spare_of(std::uint32_t length) const noexcept { return find_spare(length) != kSlots; }
  /// Removes a spare window of another length, or of any length (0), and returns it. Its data is
  /// null if there is none.
  WindowBuffer take_spare_but(std::uint32_t length) noexcept;
  /// Replaces all windows by the memory `unread`, full of unread bytes. If that is empty, there is
  /// nothing left to read.
  void become(std::span<std::byte> unread) noexcept;

  // --- announcing windows to the peer ------------------------------------------------------------
  bool to_announce() const noexcept { return unposted_ != 0; }
  std::size_t unannounced() const noexcept { return unposted_; }
  // For the following functions, `i` numbers the windows to be announced, from 0 to unannounced() -
  // 1. Their answers assume that the windows before number `i` have been announced.
  const WindowBuffer& to_announce(std::size_t i) const noexcept {
    return at(count_ - unposted_ + i).buffer;
  }
  /// Returns true if the peer already has a window that is not full when it is offered this one.
  bool is_ahead(std::size_t i) const noexcept { return count_ - unposted_ + i > full_; }
  /// Returns true if the peer is to leave the windows before this one, and to mark that it does.
  bool is_marked(std::size_t i) const noexcept {
    return leaving() && count_ - unposted_ + i == leave_;
  }
  void announced(std::uint64_t message, ae::TimePoint now) noexcept;
  /// Drops all pending announcements: to_announce() is false afterwards.
  void announce_nothing() noexcept;

  // --- data that the peer writes -----------------------------------------------------------------
  /// Returns the window that the peer is writing; null if it has none.
  const Window* current() const noexcept {
    if (full_ >= count_ - unposted_ || full_ == leave_) return nullptr;
    return &at(full_);
  }
  /// Records `length` more bytes, which must fit, in the current window. Returns true if that
  /// window is now full.
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
  /// Makes the peer leave its windows for the next one that is added, although they are not full.
  void leave() noexcept { leave_ = static_cast<std::uint8_t>(count_); }
  bool leaving() const noexcept { return leave_ != kNotLeaving; }
  /// Call when the peer has left those windows. What it wrote into them can be read.
  void left() noexcept;

  // --- the user reads ----------------------------------------------------------------------------
  bool has_unread() const noexcept { return count_ != 0 && at(0).read < at(0).filled; }
  std::uint64_t unread_bytes() const noexcept;
  /// Returns the oldest unread bytes, as far as they are contiguous.
  std::span<std::byte> unread() const noexcept {
    if (count_ == 0) return {};
    const Window& window = at(0);
    return {window.buffer.data + window.read, window.filled - window.read};
  }
  /// Fills `pieces` with the oldest unread bytes, as many pieces as fit; returns their number.
  std::size_t peek(std::span<std::span<const std::byte>> pieces) const noexcept;
  /// Records that the first `size` bytes of unread() were read. Returns true if a window was read
  /// to its end.
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
  // Slot numbers of the windows in the line, oldest first.
  std::array<std::uint8_t, kSlots> line_{};
  std::uint8_t held_ = 0, count_ = 0;
  std::uint8_t full_ = 0;      // number of full windows, at the front of the line
  std::uint8_t unposted_ = 0;  // number of windows not yet announced, at the end of the line
  // Number of windows to be left, at the front of the line; kNotLeaving: none.
  std::uint8_t leave_ = kNotLeaving;
};

}}}  // namespace conn::rdma
