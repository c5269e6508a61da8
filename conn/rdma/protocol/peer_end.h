// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How the peer's byte stream ends. Only Stream changes it, on what the peer sends, on the close of
// the connection and on its own failure.
//
//   from                    to        when
//   kOpen                   kEnded    the peer ended its stream and still reads (kShutDown)
//   kOpen, kEnded           kLeft     the peer ended its stream and reads no more (kFinished)
//   kOpen                   kClosed   the peer closed without a word about its stream
//   kOpen                   kFailed   our stream failed: the peer broke the protocol or counts as
//                                     dead, or memory was lacking
//   kFailed                 kOpen     the stream begins anew on another path
//   kFailed, kEnded, kLeft  kGone     the peer closed
//   kClosed                 kGone     our stream failed, or the peer's end was still under way
//
//   in state   data of the peer           more bytes of the peer     the peer's connection
//   kOpen      is taken                   may come                   is open
//   kFailed    is refused                 may come on another path   is open
//   kEnded     breaks the protocol        cannot come                is open
//   kLeft      breaks the protocol        cannot come                is open, and will close
//   kClosed    is taken if it was under   cannot come after those    is closed
//              way
//   kGone      is refused                 cannot come                is closed
//
// A failure in kEnded or kLeft is no step: the peer's data is refused there anyway. An abort of
// the peer is no step, either: it is recorded beside the state, and whoever owns the stream ends
// the connection.

#include <cassert>
#include <cstdint>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// The two low bits of a state tell whether data is taken and whether the input is over: these are
/// asked for every message, and so cost one test each.
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
  switch (from) {  // there is no default, so that the compiler warns about a missing state
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

  // --- what holds --------------------------------------------------------------------------------
  /// Returns true if data of the peer is taken.
  bool takes_data() const noexcept { return rdma::takes_data(state_); }
  /// Returns true if no more bytes of the peer will arrive, but for those under way when the
  /// connection closed.
  bool input_over() const noexcept { return rdma::input_over(state_); }
  /// Returns true if the peer has ended its stream, so that all its bytes have arrived, and its
  /// connection is still open.
  bool finished() const noexcept { return state_ == State::kEnded || state_ == State::kLeft; }
  /// Returns true if the peer has also said that it reads no more, so that it closes.
  bool leaves() const noexcept { return state_ == State::kLeft; }
  /// Returns true if the peer has closed the connection.
  bool closed() const noexcept { return state_ == State::kClosed || state_ == State::kGone; }
  /// Returns true if the peer has said that it aborts its stream.
  bool aborted() const noexcept { return aborted_; }

  // --- what happens ------------------------------------------------------------------------------
  /// Returns true if a message of the peer that ends its stream says something new. `leaves`: it
  /// also says that the peer reads no more.
  bool is_news(bool leaves) const noexcept {
    return takes_data() || (leaves && state_ == State::kEnded);
  }
  /// Records a message of the peer that ends its stream. One that is no news changes nothing.
  void on_finished(bool leaves) noexcept {
    if (!is_news(leaves)) return;
    // The end that was under way when the connection closed: nothing else can come.
    if (closed()) return move(State::kGone);
    move(leaves ? State::kLeft : State::kEnded);
  }
  void on_aborted() noexcept { aborted_ = true; }
  void on_closed() noexcept {
    if (!closed()) move(state_ == State::kOpen ? State::kClosed : State::kGone);
  }
  /// Records that our stream has failed.
  void on_failed() noexcept {
    if (takes_data()) move(closed() ? State::kGone : State::kFailed);
  }
  /// Records that the stream begins anew on another path. The peer must not have closed.
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
