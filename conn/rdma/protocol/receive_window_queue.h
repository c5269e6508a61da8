// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Our receive windows of one stream, in the order in which the peer fills them:
//
//     [ full, being read ][ full ]   [ filled ..... ][ announced ][ to be announced ]
//       front                          current                      last
//
// Outside this line there are spare windows: those that were read to their end, and those not
// needed yet. StreamReceiver decides how many windows there are and how long; values from the peer
// are passed to this class only after StreamReceiver has checked them.
//
// Each window has a record in memory of its own, so that an idle connection, which has one window,
// does not hold the records of eight.

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <forward_list>
#include <span>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/protocol/window_line.h"
#include "conn/rdma/protocol/window_record.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class ReceiveWindowQueue {
 public:
  static constexpr std::size_t kSlots = WindowLine::kSlots;
  using Window = WindowRecord;

  ReceiveWindowQueue() = default;
  /// A copy has records of its own for the same memory.
  ReceiveWindowQueue(const ReceiveWindowQueue& other);
  ReceiveWindowQueue(ReceiveWindowQueue&&) = default;
  ReceiveWindowQueue& operator=(ReceiveWindowQueue&&) = default;
  ~ReceiveWindowQueue() = default;

  // --- numbers of windows ------------------------------------------------------------------------
  /// Returns the number of windows that have memory, including spare ones.
  std::size_t held() const noexcept { return held_; }
  /// Returns the windows in the line, with their unread bytes. They are offered to the peer or
  /// about to be, or not yet read. Spare windows are not among them.
  const WindowLine& windows() const noexcept { return line_; }
  /// Returns how many windows are full and not yet read to their end.
  std::size_t full() const noexcept { return full_; }
  bool has_spare() const noexcept { return held_ != line_.count(); }
  /// Returns the number of windows that the peer can write into now or once they are announced to
  /// it: without the full ones, and without those that the peer was asked to leave.
  std::size_t outstanding() const noexcept { return line_.count() - (leaving() ? leave_ : full_); }
  std::uint64_t bytes() const noexcept;
  /// Returns the length in bytes of the longest window that outstanding() counts; 0 if there is
  /// none.
  std::uint32_t longest_outstanding() const noexcept;

  // --- adding and removing window memory ---------------------------------------------------------
  /// Appends a window with this memory to the line, to be announced to the peer. Fewer than kSlots
  /// windows must exist. Throws std::bad_alloc, and then changes nothing.
  void add(const WindowBuffer& buffer);
  /// Replaces the memory of the last window in the line by `buffer`. That window must not have been
  /// announced to the peer yet.
  void replace_last(const WindowBuffer& buffer) noexcept;
  /// Takes a spare window of `length` bytes (0: of any length) and appends it to the line, to be
  /// announced again. Returns false if there is no such spare window.
  bool add_spare(std::uint32_t length) noexcept;
  bool has_spare_of(std::uint32_t length) const noexcept {
    return std::any_of(windows_.begin(), windows_.end(),
                       [length](const Window& window) { return is_spare(window, length); });
  }
  /// Removes a spare window whose length is not `length` (0: any spare window) and returns its
  /// memory. The `data` of the result is null if there is no such window.
  WindowBuffer take_spare_but(std::uint32_t length) noexcept;
  /// Replaces all windows by one that consists of the memory `unread`, which holds unread bytes
  /// only, and comes from a window of this line. If `unread` is empty, no window and nothing to
  /// read is left. Allocates no memory.
  void become(std::span<std::byte> unread) noexcept;
  /// Removes all windows but the memory that become() was given, as far as it is unread. No other
  /// window may have unread bytes.
  void keep_left_over() noexcept;

  // --- announcing windows to the peer ------------------------------------------------------------
  /// Returns how many windows are to be announced.
  std::size_t unannounced() const noexcept { return unposted_; }
  // For the following functions, `i` numbers the windows to be announced, from 0 to unannounced() -
  // 1. Their answers assume that the windows before number `i` have been announced.
  const WindowBuffer& to_announce(std::size_t i) const noexcept {
    return line_.at(line_.count() - unposted_ + i).buffer;
  }
  /// Returns true if window `i` is offered while the peer has another window that is not full.
  bool is_ahead(std::size_t i) const noexcept { return line_.count() - unposted_ + i > full_; }
  /// Returns true if the offer of window `i` asks the peer to leave the windows before this one,
  /// and to mark in the stream that it does.
  bool is_marked(std::size_t i) const noexcept {
    return leaving() && line_.count() - unposted_ + i == leave_;
  }
  void announced(std::uint64_t message, ae::TimePoint now) noexcept;

  // --- data that the peer writes -----------------------------------------------------------------
  /// Returns the window that the peer writes into now; null if no announced window has space.
  const Window* current() const noexcept {
    if (full_ >= line_.count() - unposted_ || full_ == leave_) return nullptr;
    return &line_.at(full_);
  }
  /// Records that the peer wrote `length` more bytes into the current window, where they must fit.
  /// Returns true if that window is now full.
  bool fill(std::uint32_t length, ae::TimePoint now) noexcept {
    Window& window = line_.at(full_);
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
  /// Like fill(), for bytes that neither begin nor end the current window. Returns that window, or
  /// null, without a change, if `length` is another number.
  const Window* take_some(std::uint32_t length) noexcept {
    if (full_ >= line_.count() - unposted_ || full_ == leave_) return nullptr;
    Window& window = line_.at(full_);
    if (window.filled == 0 || length - 1 >= window.end - window.filled - 1) return nullptr;
    window.filled += length;
    return &window;
  }
  /// Makes the offer of the window that was added last ask the peer to leave the windows before it,
  /// although they are not full. That window must not have been announced yet.
  void leave_others() noexcept { leave_ = static_cast<std::uint8_t>(line_.count() - 1); }
  bool leaving() const noexcept { return leave_ != kNotLeaving; }
  /// Call when the peer has left the windows that leave_others() asked it to leave. The bytes that
  /// it wrote into them can be read.
  void left() noexcept;

  // --- the user reads ----------------------------------------------------------------------------
  /// Returns how many bytes the peer has written in total, read or not.
  std::uint64_t total() const noexcept;
  /// Records that the first `size` bytes of WindowLine::unread() were read. Returns true if a
  /// window was read to its end.
  bool consume(std::size_t size) noexcept {
    if (size == 0) return false;
    Window& window = line_.at(0);
    assert(size <= window.unread());
    window.read += static_cast<std::uint32_t>(size);
    if (full_ == 0 || window.read != window.filled) return false;
    remove(0);
    return true;
  }
  /// Copies up to `size` of the oldest unread bytes if they are in the window that the peer writes
  /// into now, so that no window is read to its end. Otherwise it copies nothing and returns 0.
  std::size_t read_some(std::byte* into, std::size_t size) noexcept {
    if (full_ != 0 || line_.count() == 0) return 0;
    Window& window = line_.at(0);
    const std::size_t chunk = std::min<std::size_t>(size, window.unread());
    std::memcpy(into, window.buffer.data + window.read, chunk);
    window.read += static_cast<std::uint32_t>(chunk);
    return chunk;
  }

  void check() const;

 private:
  static constexpr std::uint8_t kNotLeaving = 0xff;
  // Returns true if the window is spare and has this length (0: any length).
  static bool is_spare(const Window& window, std::uint32_t length) noexcept {
    return !window.in_line && (length == 0 || window.buffer.length == length);
  }
  void append(Window& window) noexcept;
  void remove(std::size_t place) noexcept;

  // All windows, at most kSlots, in no particular order.
  std::forward_list<Window> windows_;
  // Points into windows_.
  WindowLine line_;
  // Bytes that the peer wrote into windows that have left the line.
  std::uint64_t before_ = 0;
  std::uint8_t held_ = 0;
  std::uint8_t full_ = 0;  // number of windows in the line that are full; they are the oldest ones
  // Number of windows in the line that are not yet announced; they are the newest ones.
  std::uint8_t unposted_ = 0;
  // Number of windows, the oldest ones in the line, that the peer was asked to leave; kNotLeaving:
  // the peer was not asked to leave any.
  std::uint8_t leave_ = kNotLeaving;
};

}}}  // namespace conn::rdma
