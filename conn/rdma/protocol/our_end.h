// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How our byte stream ends. A control message tells the peer about the end: kShutDown says that all
// our bytes were sent, kFinished the same and, if the stream can resume, that we read no more,
// kAborted that the rest of our bytes is lost.
//
//   from                to          when
//   kOpen               kEndDue     finish(): we still read, and the stream can resume
//   kOpen, kEndDue, kEnded
//                       kLeaveDue   finish(): we read no more; or the stream cannot resume, so that
//                                   the peer need not know whether we still read
//   kEndDue             kEnded      the message kShutDown was posted
//   kLeaveDue           kLeft       the message kFinished was posted
//   any up to kLeaveDue
//                       kAbortDue   abort(), and the peer understands the message kAborted
//   any up to kLeaveDue
//                       kOver       abort(), and the peer does not
//   kAbortDue           kOver       the message kAborted was posted
//   kEnded, kLeft, kEndDue, kLeaveDue
//                       kOpen       the stream continues on another network path, where the end
//                                   must be announced again
//
//   in state    more bytes of ours   message that is due   the peer was told, on this path
//   kOpen       may be sent          none                  nothing
//   kEnded      will not come        none                  that our stream ended
//   kLeft       will not come        none                  that, and that we read no more
//   kEndDue     will not come        kShutDown             nothing
//   kLeaveDue   will not come        kFinished             nothing, or that our stream ended
//   kAbortDue   must not be sent     kAborted              nothing of the abort
//   kOver       must not be sent     none                  of the abort, if it understands that

#include <cassert>
#include <cstdint>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// The order of the states matters: may_have_message() and aborted() each compare the state with
/// one of them by >=.
enum class OurEndState : std::uint8_t {
  kOpen,
  kEnded,
  kLeft,
  kEndDue,
  kLeaveDue,
  kAbortDue,
  kOver,
};

constexpr bool allowed(OurEndState from, OurEndState to) {
  using enum OurEndState;
  const bool aborts = to == kAbortDue || to == kOver;
  switch (from) {  // has no default, so that the compiler warns about a missing state
    case kOpen:
      return to == kEndDue || to == kLeaveDue || aborts;
    case kEnded:
      return to == kLeaveDue || to == kOpen || aborts;
    case kLeft:
      return to == kOpen || aborts;
    case kEndDue:
      return to == kEnded || to == kLeaveDue || to == kOpen || aborts;
    case kLeaveDue:
      return to == kLeft || to == kOpen || aborts;
    case kAbortDue:
      return to == kOver;
    case kOver:
      return false;
  }
  return false;
}
static_assert(!allowed(OurEndState::kOver, OurEndState::kOpen), "an abort is final");

class OurEnd {
 public:
  using State = OurEndState;
  State state() const noexcept { return state_; }

  // --- queries of the state ----------------------------------------------------------------------
  bool aborted() const noexcept { return state_ >= State::kAbortDue; }
  /// Returns true if a message that ends the stream is due.
  bool finish_is_due() const noexcept {
    return state_ == State::kEndDue || state_ == State::kLeaveDue;
  }
  /// Returns true if the due message that ends our stream must also say that we read no more. May
  /// be called only if finish_is_due().
  bool says_leaves() const noexcept { return state_ == State::kLeaveDue; }
  bool abort_is_due() const noexcept { return state_ == State::kAbortDue; }
  /// A cheap test: if it returns false, no message that ends or aborts the stream is due. (It also
  /// returns true in state kOver, in which none is due.)
  bool may_have_message() const noexcept { return state_ >= State::kEndDue; }
  /// Returns true if the message that ends our stream was posted: with `leaves`, the one that also
  /// says that we read no more.
  bool finished(bool leaves) const noexcept {
    return state_ == State::kLeft || (state_ == State::kEnded && !leaves);
  }

  // --- events that change the state --------------------------------------------------------------
  /// Ends the stream. `leaves`: we also read no more. `resumes`: the stream can continue over
  /// another network path, so the peer must know whether we still read. Returns true if a message
  /// has become due now.
  bool finish(bool leaves, bool resumes) noexcept {
    const State to = leaves || !resumes ? State::kLeaveDue : State::kEndDue;
    if (aborted() || state_ == State::kLeft || state_ == State::kLeaveDue) return false;
    if (state_ != State::kOpen && to == State::kEndDue) return false;
    move(to);
    return true;
  }
  /// Aborts the stream. `tells`: true if the peer understands the control message kAborted, which
  /// then becomes due. Only the first call has an effect.
  void abort(bool tells) noexcept {
    if (!aborted()) move(tells ? State::kAbortDue : State::kOver);
  }
  /// Records that the message that ends or aborts the stream, which was due, has been posted.
  void on_posted() noexcept {
    assert(finish_is_due() || abort_is_due());
    move(abort_is_due() ? State::kOver : says_leaves() ? State::kLeft : State::kEnded);
  }
  /// Forgets that the end of our stream was announced, because the stream continues on another
  /// network path, where that must be repeated. The stream must not be aborted.
  void begin_path() noexcept {
    assert(!aborted());
    if (state_ != State::kOpen && !aborted()) move(State::kOpen);
  }

 private:
  void move(State to) noexcept {
    assert(allowed(state_, to));
    state_ = to;
  }

  State state_ = State::kOpen;
};

}}}  // namespace conn::rdma
