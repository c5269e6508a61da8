// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Our receive windows of one stream (memory that the peer writes into), in the order in which the
// peer fills them:
//
//     [ full, being read ][ full ]   [ filled ..... ][ announced ][ to be announced ]
//       front                          current                      last
//
// Spare windows are outside this line: those that were read to their end, and those not needed yet.
// StreamReceiver decides how many windows there are and how long they are. It also checks all
// values from the peer before it passes them to this class.
//
// The record of each window is allocated separately, so that an idle connection, which has one
// window, does not use memory for the records of eight.

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
  /// Copies the records of the receive windows, but not their memory, to which both copies refer.
  ReceiveWindowQueue(const ReceiveWindowQueue& other);
  ReceiveWindowQueue(ReceiveWindowQueue&&) = default;
  ReceiveWindowQueue& operator=(ReceiveWindowQueue&&) = default;
  ~ReceiveWindowQueue() = default;

  // --- how many windows there are ----------------------------------------------------------------
  /// Returns the number of receive windows that have memory, including spare (unused) ones.
  std::size_t held() const noexcept { return held_; }
  /// Returns the windows that are offered to the peer, about to be offered, or not yet read to
  /// their end. Spare (unused) windows are not among them.
  const WindowLine& windows() const noexcept { return line_; }
  /// Returns how many receive windows are full and not yet read to their end.
  std::size_t full() const noexcept { return full_; }
  bool has_spare() const noexcept { return held_ != line_.count(); }
  /// Returns the number of windows that the peer can write into now, or once they are announced to
  /// it. Not counted are full windows, and windows that the peer was asked to stop writing into.
  std::size_t outstanding() const noexcept { return line_.count() - (leaving() ? leave_ : full_); }
  std::uint64_t bytes() const noexcept;
  /// Returns the length in bytes of the longest window that the peer can write into now, or once it
  /// is announced; 0 if there is none.
  std::uint32_t longest_outstanding() const noexcept;

  // --- adding and removing window memory ---------------------------------------------------------
  /// Adds a window with this memory as the last one, to be announced to the peer. Fewer than kSlots
  /// windows must exist. Throws std::bad_alloc, and then changes nothing.
  void add(const WindowBuffer& buffer);
  /// Replaces the memory of the window that was added last by `buffer`. That window must not have
  /// been announced to the peer yet.
  void replace_last(const WindowBuffer& buffer) noexcept;
  /// Makes a spare (unused) window of `length` bytes (0: of any length) the last one of those in
  /// use, to be announced to the peer again. Returns false if there is no such spare window.
  bool add_spare(std::uint32_t length) noexcept;
  bool has_spare_of(std::uint32_t length) const noexcept {
    return std::any_of(windows_.begin(), windows_.end(),
                       [length](const Window& window) { return is_spare(window, length); });
  }
  /// Removes a spare (unused) window whose length is not `length` (0: any spare window) and returns
  /// its memory. The `data` of the result is null if there is no such window.
  WindowBuffer take_spare_but(std::uint32_t length) noexcept;
  /// Replaces all windows by one that is never announced and consists of the memory `unread`, which
  /// is full of unread bytes. If `unread` is empty, no window is left. If it is not empty, this
  /// queue must have a window when the function is called. Allocates no memory.
  void become(std::span<std::byte> unread) noexcept;
  /// Removes all windows, except the unread rest of the memory that become() was given. No other
  /// window may have unread bytes.
  void keep_left_over() noexcept;

  // --- announcing windows to the peer ------------------------------------------------------------
  /// Returns how many windows are still to be announced to the peer.
  std::size_t unannounced() const noexcept { return unposted_; }
  // In the following functions, `i` is the index of a window among those to be announced, from 0 to
  // unannounced() - 1. The results assume that the windows before index `i` have been announced.
  const WindowBuffer& to_announce(std::size_t i) const noexcept {
    return line_.at(line_.count() - unposted_ + i).buffer;
  }
  /// Returns true if the peer already has a window that is not full when window `i` is offered.
  bool is_ahead(std::size_t i) const noexcept { return line_.count() - unposted_ + i > full_; }
  /// Returns true if the offer of window `i` asks the peer to stop writing into all windows before
  /// this one, and to send a message (kWindowMark) when it does.
  bool is_marked(std::size_t i) const noexcept {
    return leaving() && line_.count() - unposted_ + i == leave_;
  }
  void announced(std::uint64_t message, ae::TimePoint now) noexcept;

  // --- data that the peer writes -----------------------------------------------------------------
  /// Returns the window that the peer writes into now; null if no announced window has free space.
  const Window* current() const noexcept {
    if (full_ >= line_.count() - unposted_ || full_ == leave_) return nullptr;
    return &line_.at(full_);
  }
  /// Records that the peer wrote `length` more bytes into the current window. They must fit into
  /// it. Returns true if that window is now full.
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
  /// Fast path of fill(), for `length` bytes that are neither the first nor the last ones of the
  /// current window: records them and returns that window. Otherwise changes nothing and returns
  /// null.
  const Window* take_some(std::uint32_t length) noexcept {
    if (full_ >= line_.count() - unposted_ || full_ == leave_) return nullptr;
    Window& window = line_.at(full_);
    if (window.filled == 0 || length - 1 >= window.end - window.filled - 1) return nullptr;
    window.filled += length;
    return &window;
  }
  /// Marks the window that was added last: its offer will ask the peer to stop writing into all
  /// windows before it, although they are not full. It must not have been announced yet.
  void leave_others() noexcept { leave_ = static_cast<std::uint8_t>(line_.count() - 1); }
  bool leaving() const noexcept { return leave_ != kNotLeaving; }
  /// Records that the peer no longer writes into the windows before the one that leave_others()
  /// marked, as it has reported. Bytes in these windows stay readable; empty ones become spare
  /// (unused).
  void left() noexcept;

  // --- reading by the user -----------------------------------------------------------------------
  /// Returns how many bytes of the stream the peer has written in total, including those that were
  /// read.
  std::uint64_t total() const noexcept;
  /// Records that the user has read the first `size` bytes of WindowLine::unread(). Returns true if
  /// a window was read to its end.
  bool consume(std::size_t size) noexcept {
    if (size == 0) return false;
    Window& window = line_.at(0);
    assert(size <= window.unread());
    window.read += static_cast<std::uint32_t>(size);
    if (full_ == 0 || window.read != window.filled) return false;
    remove(0);
    return true;
  }
  /// Copies up to `size` of the oldest unread bytes to `into`, if they are in a window that is not
  /// full, so that no window is read to its end. Otherwise copies nothing. Returns the number of
  /// bytes copied.
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
  // Returns true if the window is spare (neither offered to the peer nor unread) and has this
  // length in bytes (0: any length).
  static bool is_spare(const Window& window, std::uint32_t length) noexcept {
    return !window.in_line && (length == 0 || window.buffer.length == length);
  }
  void append(Window& window) noexcept;
  void remove(std::size_t place) noexcept;

  // The records of all receive windows, including spare (unused) ones; at most kSlots, in no
  // particular order.
  std::forward_list<Window> windows_;
  // Number of bytes that the peer wrote into windows that are no longer in line_.
  std::uint64_t before_ = 0;
  // The windows that are in use (not spare), in the order in which the peer fills them; pointers to
  // records in windows_. The attribute puts the next members into the padding at its end.
  [[no_unique_address]] WindowLine line_;
  std::uint8_t held_ = 0;
  std::uint8_t full_ = 0;  // number of full windows in line_; they are the first ones
  // Number of windows in line_ that are not announced to the peer yet; they are the last ones.
  std::uint8_t unposted_ = 0;
  // Number of windows, the oldest ones in line_, that the peer was asked to stop writing into;
  // kNotLeaving if there is no such request.
  std::uint8_t leave_ = kNotLeaving;
};

}}}  // namespace conn::rdma
