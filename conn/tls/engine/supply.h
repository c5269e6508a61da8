// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Decides whether OpenSSL gets input when it asks for some. Each call of the engine may read a
// limited number of bytes from the wire (connection below TLS), so that a peer that sends without
// end does not keep the loop busy. A wire that is known to be empty is not read again.
//
//   from       to         when
//   kOpen      kDrained   a read was short: another one would cost a system call and find nothing
//   kOpen      kEmptied   the wire had nothing
//   kOpen      kPaused    the wire may have more, which was withheld from OpenSSL
//   kDrained   kEmptied   OpenSSL asked for more than the wire had
//   kDrained   kPaused    OpenSSL asked for what the wire had, and it was withheld
//   kPaused    kOpen      OpenSSL is called again, or asks again
//   any        kOpen, kDrained
//                         a call of the engine begins
//
//   in state   OpenSSL has       the next event of the wire
//   kOpen      what it asked for is not known yet
//   kDrained   what it asked for announces all further input
//   kEmptied   asked in vain     announces all further input
//   kPaused    asked in vain     may never come: the engine must be called again

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

class Supply {
 public:
  enum class State : std::uint8_t { kOpen, kDrained, kEmptied, kPaused };

  /// Returns whether the state may change from `from` to `to` within one call of the engine.
  static constexpr bool allowed(State from, State to) {
    using enum State;
    switch (from) {  // there is no default, so that the compiler warns about a missing state
      case kOpen:
        return to == kDrained || to == kEmptied || to == kPaused;
      case kDrained:
        return to == kEmptied || to == kPaused;
      case kEmptied:
        return false;
      case kPaused:
        return to == kOpen;
    }
    return false;
  }

  // Begin a call of the engine. After begin() it may read `budget` bytes from the wire (connection
  // below TLS); after begin_drained() it uses only bytes that were read before.
  void begin(std::size_t budget) noexcept {
    state_ = State::kOpen;
    budget_ = budget;
  }
  void begin_drained() noexcept {
    state_ = State::kDrained;
    budget_ = 0;
  }
  /// Lets OpenSSL ask for input again after input was withheld. Must be called before each call of
  /// OpenSSL within one call of the engine.
  void again() noexcept {
    if (paused()) move_to(State::kOpen);
  }
  /// Withholds all further input from OpenSSL, in this and all later calls of the engine.
  void shut() noexcept { shut_ = true; }

  /// Called when OpenSSL asks for input. Returns whether the wire (connection below TLS) may be
  /// read. `withhold`: whether the caller wants input to be withheld for now.
  bool ask(bool withhold) noexcept {
    again();
    if (state_ == State::kDrained) move_to(State::kEmptied);
    if (emptied()) return false;
    if (!shut_ && budget_ != 0 && !withhold) return true;
    move_to(State::kPaused);
    return false;
  }
  /// Like ask(), for input that was read from the wire (connection below TLS) already: returns
  /// whether OpenSSL gets it. `withhold`: whether the caller wants it withheld for now.
  bool ask_for_left(bool withhold) noexcept {
    again();
    if (!shut_ && !withhold) return true;
    move_to(State::kPaused);
    return false;
  }
  // Record the result of reading the wire (connection below TLS): `size` bytes, or nothing for now.
  // `drained`: the wire is known to be empty after that.
  void got(std::size_t size, bool drained) noexcept {
    budget_ -= std::min(budget_, size);
    if (drained) move_to(State::kDrained);
  }
  void got_nothing() noexcept { move_to(State::kEmptied); }

  State state() const noexcept { return state_; }
  bool emptied() const noexcept { return state_ == State::kEmptied; }
  bool paused() const noexcept { return state_ == State::kPaused; }

 private:
  void move_to(State next) noexcept {
    assert(allowed(state_, next));
    state_ = next;
  }

  State state_ = State::kOpen;
  bool shut_ = false;
  std::size_t budget_ = 0;
};

}}}  // namespace conn::tls
