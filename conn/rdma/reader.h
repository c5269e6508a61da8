// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The reading side of one RDMA connection: how many bytes it may still read in this iteration of
// the loop, how many bytes the user waits for, and of which bytes the user has a view (peek()).
//
// Invariants: shown(), the size of the view, is at most the number of unread bytes. While viewed()
// is true, the user may access the memory of the receive windows, so this memory is not freed.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/in_place.h"
#include "conn/rdma/protocol/stream.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class Reader {
 public:
  // --- read budget: bytes that the connection may read in one iteration of the loop --------------
  bool may_read(std::uint64_t iteration) const noexcept {
    return left_ != 0 || iteration_ != iteration;
  }
  /// Sets the read budget to `budget` bytes if a new iteration of the loop has begun. `iteration`:
  /// the number of the present iteration.
  void renew(std::uint64_t iteration, std::size_t budget) noexcept {
    if (iteration_ != iteration) refill(iteration, budget);
  }
  void refill(std::uint64_t iteration, std::size_t budget) noexcept {
    iteration_ = iteration;
    left_ = budget;
  }
  std::size_t left() const noexcept { return left_; }

  // --- reading by copy ---------------------------------------------------------------------------
  /// Returns true if the read handler must be called: there are as many unread bytes as the user
  /// waits for, no more can arrive before some are read, or the peer's stream has ended.
  bool is_due(const Stream& stream) const noexcept;
  struct Taken {
    std::size_t bytes;
    /// True if a receive window was read to its end, so that the stream may want another window.
    bool turned;
  };
  /// Copies up to `size` unread bytes to `into` and removes them from the stream; if `into` is
  /// null, only removes them.
  Taken take(StreamReceiver& inbound, std::byte* into, std::size_t size) {
    const std::uint32_t changes = inbound.window_changes();
    const std::size_t n = inbound.read(into, size);
    left_ -= std::min(n, left_);
    shown_ -= std::min(n, shown_);
    return {n, inbound.window_changes() != changes};
  }

  /// Fast path of take(), for bytes in a receive window that the peer has not filled: then no
  /// window is read to its end. Returns the number of bytes read; in all other cases reads nothing
  /// and returns 0.
  std::size_t take_straight(StreamReceiver& inbound, std::byte* into, std::size_t size) noexcept {
    const std::size_t n = inbound.read_straight(into, std::min(size, left_));
    left_ -= n;
    if (shown_ != 0) [[unlikely]]
      shown_ -= std::min(n, shown_);
    return n;
  }

  // --- the end of the peer's stream --------------------------------------------------------------
  /// Records that read() has reported the end of the peer's stream to the program.
  void set_ended() noexcept { ended_ = true; }
  bool ended() const noexcept { return ended_; }
  /// Returns true at the first call only, so that the program is told once that the peer has ended
  /// its stream. (This is independent of set_ended(): there may still be unread bytes.)
  [[nodiscard]] bool is_first_to_report_end() noexcept {
    return !std::exchange(end_reported_, true);
  }

  // --- views of unread bytes (reading in place) --------------------------------------------------
  /// Implements Carrier::peek() if there are unread bytes. Fills `view` and returns 1; or returns
  /// -1 with errno EMSGSIZE if `together` contiguous bytes cannot be provided. `ended`: no more
  /// bytes will arrive.
  int show(const Stream& stream, bool ended, std::size_t together, View& view);
  void show_nothing() noexcept { shown_ = 0; }
  /// Returns the number of bytes in the last view (result of peek()) that are not consumed yet.
  std::size_t shown() const noexcept { return shown_; }
  /// Returns true as long as the user may use the view that peek() returned.
  bool viewed() const noexcept { return viewed_; }
  /// Returns true if the user has a view of received bytes or waits for more than one byte.
  bool has_view() const noexcept { return has_view_; }
  /// Ends the user's view (result of peek()): the user waits for any byte again. Returns true if
  /// the user was waiting for more than one byte before, so that the read handler may be due now.
  bool end_view() noexcept {
    viewed_ = has_view_ = false;
    return std::exchange(together_, 1) != 1;
  }
  void want_anything() noexcept { wait_for(1); }

  // --- copy of unread bytes after the windows were freed -----------------------------------------
  /// Takes ownership of `copy`, into which the unread bytes were copied before the receive windows
  /// were freed; null: there is none. Returns the copy that was stored before.
  [[nodiscard]] std::unique_ptr<std::byte[]> exchange_copy(
      std::unique_ptr<std::byte[]> copy) noexcept {
    return std::exchange(copy_, std::move(copy));
  }

 private:
  void wait_for(std::size_t together) noexcept {
    together_ = together;
    has_view_ = viewed_ || together != 1;
  }

  std::uint64_t iteration_ = 0;
  std::size_t left_ = 0;
  // Least number of unread bytes for which the read handler is called, usually 1.
  std::size_t together_ = 1;
  std::size_t shown_ = 0;
  std::unique_ptr<std::byte[]> copy_;  // owns the memory of copied unread bytes
  bool viewed_ = false;
  bool has_view_ = false;  // stores the value of viewed_ || together_ != 1
  bool ended_ = false, end_reported_ = false;
};

}}}  // namespace conn::rdma
