// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How the peer's byte stream ends. Only class Stream changes this state: when the peer sends a
// message, when the connection closes, and when our stream fails.
//
//   from                    to        when
//   kOpen                   kEnded    the peer ended its stream and still reads (kShutDown)
//   kOpen, kEnded           kLeft     the peer ended its stream (kFinished); if the stream can
//                                     resume, it also reads no more
//   kOpen                   kClosed   the peer closed without a message that ends its stream
//   kOpen                   kFailed   our stream failed: the peer broke the protocol or counts as
//                                     dead, or there was no memory
//   kFailed                 kOpen     the stream continues on another network path
//   kFailed, kEnded, kLeft  kGone     the peer closed
//   kClosed                 kGone     our stream failed, or the message that ends the peer's stream
//                                     arrived after the close
//
//   in state   data of the peer         more bytes of the peer     the peer's connection
//   kOpen      is accepted              may come                   is open
//   kFailed    is refused               may come on another path   is open
//   kEnded     breaks the protocol      cannot come                is open
//   kLeft      breaks the protocol      cannot come                is open
//   kClosed    is accepted: it was      cannot be sent any more    is closed
//              sent before the close
//   kGone      is refused               cannot come                is closed
//
// A failure in kEnded or kLeft changes no state, because data of the peer is refused there anyway.
// An abort by the peer changes no state, either: it is recorded in aborted_, and the owner of the
// stream ends the connection.

#include <cassert>
#include <cstdint>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Bit 0 of a state is set if data of the peer is accepted, bit 1 if no more input comes. Both are
/// checked for every message, and so cost one test each.
enum class PeerEndState : std::uint8_t {
  kFailed = 0,
  kOpen = 1,
  kGone = 2,
  kClosed = 3,
  kEnded = 4 + 2,
  kLeft = 8 + 2,
};

constexpr bool takes_data(PeerEndState state) { return (static_cast<unsigned>(state) & 1) != 0; }
constexpr bool input_over(PeerEndState state) { return (static_cast<unsigned>(state) & 2) != 0; }

constexpr bool allowed(PeerEndState from, PeerEndState to) {
  using enum PeerEndState;
  switch (from) {  // has no default, so that the compiler warns about a missing state
    case kOpen:
      return to == kEnded || to == kLeft || to == kClosed || to == kFailed;
    case kFailed:
      return to == kOpen || to == kGone;
    case kEnded:
      return to == kLeft || to == kGone;
    case kLeft:
    case kClosed:
      return to == kGone;
    case kGone:
      return false;
  }
  return false;
}
static_assert(!allowed(PeerEndState::kEnded, PeerEndState::kOpen), "the peer ends its stream once");

class PeerEnd {
 public:
  using State = PeerEndState;
  State state() const noexcept { return state_; }

  // --- queries of the state ----------------------------------------------------------------------
  /// Returns true if data that arrives from the peer is accepted.
  bool takes_data() const noexcept { return rdma::takes_data(state_); }
  /// Returns true if the peer's stream is over: no more of its bytes will arrive, except those that
  /// were already under way when the connection closed.
  bool input_over() const noexcept { return rdma::input_over(state_); }
  /// Returns true if the peer has ended its stream, so that all its bytes have arrived, and its
  /// connection is still open.
  bool finished() const noexcept { return state_ == State::kEnded || state_ == State::kLeft; }
  /// Returns true if the peer has ended its stream with kFinished. If the stream can resume, this
  /// also means that the peer reads no more.
  bool leaves() const noexcept { return state_ == State::kLeft; }
  /// Returns true if the peer has closed the connection.
  bool closed() const noexcept { return state_ == State::kClosed || state_ == State::kGone; }
  /// Returns true if the peer has sent kAborted.
  bool aborted() const noexcept { return aborted_; }

  // --- events that change the state --------------------------------------------------------------
  /// Returns true if a message with which the peer ends its stream says something new; false if it
  /// repeats an earlier message. `leaves`: the message is kFinished, not kShutDown.
  bool is_news(bool leaves) const noexcept {
    return takes_data() || (leaves && state_ == State::kEnded);
  }
  /// Records a message that ends the peer's stream. A repeated message changes nothing.
  void on_finished(bool leaves) noexcept {
    if (!is_news(leaves)) return;
    // This message, which ends the peer's stream, was still under way when the connection closed.
    // Nothing can follow it.
    if (closed()) return move(State::kGone);
    move(leaves ? State::kLeft : State::kEnded);
  }
  void on_aborted() noexcept { aborted_ = true; }
  void on_closed() noexcept {
    if (!closed()) move(state_ == State::kOpen ? State::kClosed : State::kGone);
  }
  /// Records that our stream has failed (Stream::failure()): data of the peer is refused from now
  /// on.
  void on_failed() noexcept {
    if (takes_data()) move(closed() ? State::kGone : State::kFailed);
  }
  /// Accepts data of the peer again after a failure, because the stream continues on another
  /// network path. The peer must not have closed.
  void begin_path() noexcept {
    assert(!closed());
    if (state_ == State::kFailed) move(State::kOpen);
  }

 private:
  void move(State to) noexcept {
    assert(allowed(state_, to));
    state_ = to;
  }

  State state_ = State::kOpen;
  bool aborted_ = false;
};

}}}  // namespace conn::rdma
