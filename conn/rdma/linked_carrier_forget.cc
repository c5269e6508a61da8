// SPDX-License-Identifier: BSD-3-Clause
// What close() does while a connection with a session has no path (docs/resume.md).
//
//   close_later()    if bytes are left: waits for a new path, at most for option linger, and closes
//                    on it as usual
//   ask_to_forget()  connecting end, no bytes are left: its request is not for a path, but asks the
//                    peer to end the session, and says how many bytes the stream has
//   forget()         accepting end: does what the peer's close would have done over a path

#include <fmt/format.h>

#include <cerrno>

#include "conn/rdma/linked_carrier.h"
#include "conn/rdma/protocol/resume_message.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

bool LinkedCarrier::can_ask_to_forget() const noexcept {
  return session_ != nullptr && session_->lost() && link_.role() == Role::kClient && !aborts() &&
         link_.stream.peer().said(Hello::kForgets);
}

// Returns true if the peer is to be asked to end the session: no bytes are left, which would need a
// path, or the program does not wait for them (linger=0).
bool LinkedCarrier::asks_to_forget() const noexcept {
  return session_->resumes_as() == Phase::kClosing && can_ask_to_forget() &&
         (session_->unsent().empty() || link_.settings().linger == ae::Duration::zero());
}

void LinkedCarrier::close_later() noexcept {
  const bool asks = can_ask_to_forget();
  ae::Duration patience = link_.settings().linger;
  // With linger=0 no bytes are delivered any more, but the peer is still told.
  if (patience == ae::Duration::zero() && asks) patience = kFailurePatience;
  const ae::TimePoint now = std::chrono::steady_clock::now();
  session_->resume_as(Phase::kClosing);
  close_deadline_ = now + patience;
  session_->give_up_at(close_deadline_);
  if (moving_) return;  // join() calls this again
  const bool waits = patience != ae::Duration::zero() && !aborts();
  switch (link_.stage.phase()) {
    case Phase::kResolving:
    case Phase::kConnecting:
      if (!waits) {
        setup_.reset();
        return finish();
      }
      if (!asks_to_forget()) return;
      // The present attempt asks for a path, not for the end of the session, so a new one replaces
      // it. If the peer gets both requests, the later one counts.
      give_up_attempt();
      session_->set_next(now);
      return link_.state().want_reap(*this);
    case Phase::kLost:
      if (!waits) return finish();
      if (asks) session_->set_next(now);
      return link_.state().want_reap(*this);  // plans the next attempt, or the end of the wait
    case Phase::kAccepting:
      if (!waits) begin_disconnect(kFailurePatience);
      return;
    default:
      if (aborts()) return begin_abort();
      if (!waits || !deadline_.set(patience, Deadline::Of::kLinger))
        begin_disconnect(kFailurePatience);
  }
}

void LinkedCarrier::ask_without_loop() noexcept {
  if (link_.stage.phase() != Phase::kResolving || setup_ == nullptr || setup_->addresses() != 0)
    return;
  give_up_attempt();
  session_->set_next(std::chrono::steady_clock::now());
  link_.state().want_reap(*this);
}

void LinkedCarrier::ask_to_forget(ResumeMessage& message) noexcept {
  session_->asked_to_forget = asks_to_forget();
  if (!session_->asked_to_forget) return;
  message.reason = ResumeReason::kForget;
  message.total = session_->total();
}

// Called once the old path is left, so that all bytes that arrived over it are counted.
void LinkedCarrier::forget(RdmaPending& request, const ResumeMessage& asked) {
  const std::uint64_t counted = link_.stream.inbound().line().total();
  ++link_.state().statistics().forgotten;
  request.refuse(text_of(asked.total == counted ? Refused::kOver : Refused::kGap));
  Failure failure{std::make_error_code(std::errc::connection_reset), {}};
  if (asked.total != counted) {
    if (asked.total > counted) {
      failure.text = fmt::format(
          "the peer closed without a path, and the last {} bytes of its stream did not arrive",
          asked.total - counted);
    } else {
      failure = {std::make_error_code(std::errc::protocol_error),
                 "the peer ended its stream at another byte than the last that arrived"};
    }
    name_peer(failure);
    return end_with(std::move(failure));
  }
  link_.stream.on_peer_closed();
  if (!closing()) {
    const std::uint64_t missed = session_->missed_by(static_cast<std::uint32_t>(asked.received));
    if (missed != 0) {
      failure.text = fmt::format("the peer closed before it took the last {} bytes", missed);
      name_peer(failure);
      pending_failure_ = std::move(failure);
    }
    host().peer_gone();
  }
  finish();
  update_ready();
}

}}}  // namespace conn::rdma
