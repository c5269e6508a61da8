// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How our byte stream ends. A control message tells the peer so: kShutDown says that all our bytes
// were sent, kFinished that we read no more, either, and kAborted that the rest is lost.
//
//   from                to          when
//   kOpen               kEndDue     finish(): we still read, and the stream resumes
//   kOpen, kEndDue, kEnded
//                       kLeaveDue   finish(): we read no more; or the stream does not resume, where
//                                   the peer need not know the difference
//   kEndDue             kEnded      the message kShutDown was posted
//   kLeaveDue           kLeft       the message kFinished was posted
//   any up to kLeaveDue
//                       kAbortDue   abort(), and the peer understands the message kAborted
//   any up to kLeaveDue
//                       kOver       abort(), and the peer does not
//   kAbortDue           kOver       the message kAborted was posted
//   kEnded, kLeft, kEndDue, kLeaveDue
//                       kOpen       the stream begins anew on another path: earlier bytes are sent
//                                   again before its end
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

/// In this order, because may_have_message() and aborted() each compare with one state.
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
  switch (from) {  // there is no default, so that the compiler warns about a missing state
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

  // --- what holds --------------------------------------------------------------------------------
  bool aborted() const noexcept { return state_ >= State::kAbortDue; }
  /// Returns true if a message that ends the stream is due.
  bool finish_is_due() const noexcept {
    return state_ == State::kEndDue || state_ == State::kLeaveDue;
  }
  /// Returns true if that message is to say that we read no more. Only for finish_is_due().
  bool says_leaves() const noexcept { return state_ == State::kLeaveDue; }
  bool abort_is_due() const noexcept { return state_ == State::kAbortDue; }
  /// Returns false only if no message of this class is due.
  bool may_have_message() const noexcept { return state_ >= State::kEndDue; }
  /// Returns true if the last message that finish(leaves) made due was posted.
  bool finished(bool leaves) const noexcept {
    return state_ == State::kLeft || (state_ == State::kEnded && !leaves);
  }

  // --- what happens ------------------------------------------------------------------------------
  /// Ends the stream. `leaves`: we read no more, either; `resumes`: the stream can go on over
  /// another path, so that the peer must know which of both it is. Returns true if a message has
  /// become due now.
  bool finish(bool leaves, bool resumes) noexcept {
    const State to = leaves || !resumes ? State::kLeaveDue : State::kEndDue;
    if (aborted() || state_ == State::kLeft || state_ == State::kLeaveDue) return false;
    if (state_ != State::kOpen && to == State::kEndDue) return false;
    move(to);
    return true;
  }
  /// Aborts the stream. `tells`: the peer understands the message that says so. Only the first call
  /// has an effect.
  void abort(bool tells) noexcept {
    if (!aborted()) move(tells ? State::kAbortDue : State::kOver);
  }
  /// Records that the message that is due was posted.
  void on_posted() noexcept {
    assert(finish_is_due() || abort_is_due());
    move(abort_is_due() ? State::kOver : says_leaves() ? State::kLeft : State::kEnded);
  }
  /// Records that the stream begins anew on another path. It must not be aborted.
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
