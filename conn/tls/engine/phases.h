// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How far a TLS connection has come: its handshake, and the end of each direction. Steps are
// one-way, except that a blocked write may continue.
//
//   handshake       from           to             when
//                   kNew           kShaking       handshake() was called
//                   kShaking       kEstablished   both sides have sent their last message
//
//   in phase        the last flight may be held back   close_notify and messages of the peer
//   kNew            no: it would be the first          are errors
//   kShaking        yes                                are errors
//   kEstablished    no: it is written                  are allowed
//
//   receiving       from           to             when
//                   kOpen          kEnded         the peer's close_notify was received
//                   kOpen          kOver          a failure; earlier data was read or is lost
//
//   in state        read() returns
//   kOpen           data; after a failure, as long as the wire has some
//   kEnded          0, or after a failure -1
//   kOver           -1; the engine has failed
//
//   sending         from           to             when
//                   kOpen          kBlocked       a write found a message of the peer unfinished
//                   kBlocked       kOpen          that message is complete
//                   kOpen, kBlocked
//                                  kCloseOwed     close_notify()
//                   kCloseOwed     kCloseSent     OpenSSL has written close_notify
//
//   in state        write()        waits for the rest of a message of the peer
//   kOpen           is possible    no
//   kBlocked        may fail       as long as the message is unfinished
//   kCloseOwed      must not be    as long as the message is unfinished
//   kCloseSent      must not be    no

#include <cassert>
#include <cstdint>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

enum class Phase : std::uint8_t { kNew, kShaking, kEstablished };
enum class Receiving : std::uint8_t { kOpen, kEnded, kOver };
enum class Sending : std::uint8_t { kOpen, kBlocked, kCloseOwed, kCloseSent };

constexpr bool allowed(Phase from, Phase to) {
  return (from == Phase::kNew && to == Phase::kShaking) ||
         (from == Phase::kShaking && to == Phase::kEstablished);
}

constexpr bool allowed(Receiving from, Receiving to) {
  return from == Receiving::kOpen && to != Receiving::kOpen;
}

constexpr bool allowed(Sending from, Sending to) {
  using enum Sending;
  switch (from) {  // there is no default, so that the compiler warns about a missing state
    case kOpen:
      return to == kBlocked || to == kCloseOwed;
    case kBlocked:
      return to == kOpen || to == kCloseOwed;
    case kCloseOwed:
      return to == kCloseSent;
    case kCloseSent:
      return false;
  }
  return false;
}
static_assert(!allowed(Sending::kCloseSent, Sending::kOpen), "close_notify is the last record");

/// The three states of one TLS connection: of its handshake, of receiving and of sending.
class Progress {
 public:
  Phase phase() const noexcept { return phase_; }
  Receiving receiving() const noexcept { return receiving_; }
  Sending sending() const noexcept { return sending_; }
  /// Whether the handshake has succeeded. Before that nothing is known for certain about the peer.
  bool established() const noexcept { return phase_ == Phase::kEstablished; }
  /// Whether the peer's close_notify was received: it sends no more data.
  bool ended() const noexcept { return receiving_ == Receiving::kEnded; }
  /// Whether no more data can be read, not even data that arrived before a failure.
  bool reading_over() const noexcept { return receiving_ == Receiving::kOver; }

  // Change one of the states; the change must be allowed().
  void move_to(Phase next) noexcept { change(phase_, next); }
  void move_to(Receiving next) noexcept { change(receiving_, next); }
  void move_to(Sending next) noexcept { change(sending_, next); }

 private:
  template <class State>
  static void change(State& state, State next) noexcept {
    assert(allowed(state, next));
    state = next;
  }

  Phase phase_ = Phase::kNew;
  Receiving receiving_ = Receiving::kOpen;
  Sending sending_ = Sending::kOpen;
};

}}}  // namespace conn::tls
