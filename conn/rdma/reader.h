// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The reading side of one connection: how much it may read in this iteration, what its user waits
// for, and what its user looks at in place.
//
// Holds at all times: shown() is at most what is unread; while viewed(), the memory of the windows
// may be in use and must stay.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/in_place.h"
#include "conn/rdma/protocol/stream.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class Reader {
 public:
  // --- budget: bytes that one connection may read in one iteration of the loop
  // --------------------
  bool may_read(std::uint64_t turn) const noexcept { return left_ != 0 || turn_ != turn; }
  /// A new iteration has a new budget.
  void renew(std::uint64_t turn, std::size_t budget) noexcept {
    if (turn_ != turn) refill(turn, budget);
  }
  void refill(std::uint64_t turn, std::size_t budget) noexcept {
    turn_ = turn;
    left_ = budget;
  }
  std::size_t left() const noexcept { return left_; }

  // --- reading -----------------------------------------------------------------------------------
  /// The read handler is due for what `stream` has.
  bool is_due(const Stream& stream) const noexcept {
    if (!stream.inbound().has_unread()) return false;
    return together_ == 1 || stream.inbound().unread_bytes() >= together_ ||
           stream.inbound().is_full() || stream.peer_closed();
  }
  struct Taken {
    std::size_t bytes;
    bool turned;  ///< a window was read to its end: another may have to be offered
  };
  /// `into` may be null: the bytes are then consumed without a copy.
  Taken take(StreamReceiver& inbound, std::byte* into, std::size_t size) {
    const std::uint32_t turns = inbound.window_turns();
    const std::size_t n = inbound.read(into, size);
    left_ -= std::min(n, left_);
    shown_ -= std::min(n, shown_);
    return {n, inbound.window_turns() != turns};
  }

  // --- in place ----------------------------------------------------------------------------------
  /// As Carrier::peek(), with unread bytes: 1, or -1 with EMSGSIZE. `ended`: no more will arrive.
  int show(const Stream& stream, bool ended, std::size_t together, View& view);
  void show_nothing() noexcept { shown_ = 0; }
  std::size_t shown() const noexcept { return shown_; }  ///< bytes that the last peek() showed
  bool viewed() const noexcept { return viewed_; }       ///< the view may still be in use
  bool has_view() const noexcept { return viewed_ || together_ != 1; }
  /// The view is not used any more, and any byte is of interest again. True: that is a change, so
  /// the read handler may be due.
  bool end_view() noexcept {
    viewed_ = false;
    return std::exchange(together_, 1) != 1;
  }
  void want_anything() noexcept { together_ = 1; }

 private:
  std::uint64_t turn_ = 0;
  std::size_t left_ = 0;
  std::size_t together_ = 1;  // unread bytes the read handler waits for
  std::size_t shown_ = 0;
  bool viewed_ = false;
};

}}}  // namespace conn::rdma
