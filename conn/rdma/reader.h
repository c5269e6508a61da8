// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The reading side of one connection: how many bytes it may still read in this iteration of the
// loop, how many bytes its user waits for, and which bytes its user looks at in place.
//
// Invariants: shown() is at most the number of unread bytes; while viewed() is true, the memory of
// the windows may be in use and must stay.

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
  // --- budget: bytes one connection may read in one loop iteration -------------------------------
  bool may_read(std::uint64_t iteration) const noexcept {
    return left_ != 0 || iteration_ != iteration;
  }
  /// Gives the connection a new read budget of `budget` bytes if a new iteration of the loop has
  /// begun (`iteration` is the number of the iteration).
  void renew(std::uint64_t iteration, std::size_t budget) noexcept {
    if (iteration_ != iteration) refill(iteration, budget);
  }
  void refill(std::uint64_t iteration, std::size_t budget) noexcept {
    iteration_ = iteration;
    left_ = budget;
  }
  std::size_t left() const noexcept { return left_; }

  // --- reading -----------------------------------------------------------------------------------
  /// Returns true if the read handler is to be called: `stream` has as many unread bytes as the
  /// user waits for, can receive no more before some are read, or has ended.
  bool is_due(const Stream& stream) const noexcept;
  struct Taken {
    std::size_t bytes;
    /// True if a receive window was read to its end: the stream may want another window now.
    bool turned;
  };
  /// Reads up to `size` bytes of `inbound` into `into`; if `into` is null, consumes them without a
  /// copy.
  Taken take(StreamReceiver& inbound, std::byte* into, std::size_t size) {
    const std::uint32_t changes = inbound.window_changes();
    const std::size_t n = inbound.read(into, size);
    left_ -= std::min(n, left_);
    shown_ -= std::min(n, shown_);
    return {n, inbound.window_changes() != changes};
  }

  /// Like take(), if no receive window is read to its end. Otherwise it reads nothing and returns
  /// 0.
  std::size_t take_straight(StreamReceiver& inbound, std::byte* into, std::size_t size) noexcept {
    const std::size_t n = inbound.read_straight(into, std::min(size, left_));
    left_ -= n;
    shown_ -= std::min(n, shown_);
    return n;
  }

  // --- the end of the peer's stream --------------------------------------------------------------
  /// Records that a read has returned the end of the peer's stream.
  void set_ended() noexcept { ended_ = true; }
  bool ended() const noexcept { return ended_; }
  /// Returns true at the first call: the program is to be told that the peer has ended its stream,
  /// whether or not everything has been read.
  [[nodiscard]] bool is_first_to_report_end() noexcept {
    return !std::exchange(end_reported_, true);
  }

  // --- reading in place --------------------------------------------------------------------------
  /// Implements Carrier::peek() for the case that there are unread bytes: fills `view` and returns
  /// 1, or returns -1 with errno EMSGSIZE if `together` bytes can never be contiguous. `ended`: no
  /// more bytes will arrive.
  int show(const Stream& stream, bool ended, std::size_t together, View& view);
  void show_nothing() noexcept { shown_ = 0; }
  /// Returns the number of bytes that the last peek() showed to the user and that are not consumed
  /// yet.
  std::size_t shown() const noexcept { return shown_; }
  /// Returns true while the user may still use the view that peek() returned.
  bool viewed() const noexcept { return viewed_; }
  bool has_view() const noexcept { return viewed_ || together_ != 1; }
  /// Records that the user no longer uses the view and again waits for any byte. Returns true if
  /// the user was waiting for more than one byte before, so that the read handler may be due now.
  bool end_view() noexcept {
    viewed_ = false;
    return std::exchange(together_, 1) != 1;
  }
  void want_anything() noexcept { together_ = 1; }

  // --- unread bytes without a path ---------------------------------------------------------------
  /// Keeps `copy`, which has the unread bytes since the receive windows were freed; null: there is
  /// none. Returns the copy that was kept before.
  [[nodiscard]] std::unique_ptr<std::byte[]> exchange_copy(
      std::unique_ptr<std::byte[]> copy) noexcept {
    return std::exchange(copy_, std::move(copy));
  }

 private:
  std::uint64_t iteration_ = 0;
  std::size_t left_ = 0;
  // Least number of unread bytes for which the read handler is called; 1: it is called for any
  // byte.
  std::size_t together_ = 1;
  std::size_t shown_ = 0;
  std::unique_ptr<std::byte[]> copy_;  // see exchange_copy()
  bool viewed_ = false;
  bool ended_ = false, end_reported_ = false;
};

}}}  // namespace conn::rdma
