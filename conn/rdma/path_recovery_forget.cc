// SPDX-License-Identifier: BSD-3-Clause
// The close() of a connection that can continue over another network path (it has a session), while
// it has no path.

#include "conn/rdma/path_recovery.h"

#include <fmt/format.h>

#include <cerrno>

#include "conn/rdma/protocol/resume_message.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

bool PathRecovery::can_ask_to_forget() const noexcept {
  return lost() && link_.role() == Role::kClient && !host().aborts() &&
         link_.stream.peer().said(Hello::kForgets);
}

// Returns true if the next request to the peer must end the session instead of asking for a new
// network path: no unsent bytes are left that need a path, or linger=0 drops them.
bool PathRecovery::asks_to_forget() const noexcept {
  return session_->resumes_as() == Phase::kClosing && can_ask_to_forget() &&
         (session_->unsent().empty() || link_.settings().linger == ae::Duration::zero());
}

void PathRecovery::close_later() noexcept {
  const bool asks = can_ask_to_forget();
  ae::Duration time_limit = link_.settings().linger;
  // With linger=0 no more bytes are delivered, but the peer is still asked to end the session, so
  // that it does not wait for a new network path.
  if (time_limit == ae::Duration::zero() && asks) time_limit = Ending::kFailureTimeout;
  const ae::TimePoint now = std::chrono::steady_clock::now();
  session_->resume_as(Phase::kClosing);
  ending_.set_close_by(now + time_limit);
  session_->give_up_at(now + time_limit);
  if (moving_) return;  // join_loop() will call close_later() again
  const bool waits = time_limit != ae::Duration::zero() && !host().aborts();
  switch (link_.stage.phase()) {
    case Phase::kResolving:
    case Phase::kConnecting:
      if (!waits) {
        setup_.reset();
        return user_.finish();
      }
      if (!asks_to_forget()) return;
      // The present attempt asks the peer for a network path. It is given up, and the next attempt
      // asks the peer to end the session. If the requests of both attempts reach the peer, the
      // later one counts.
      give_up_attempt();
      session_->set_next(now);
      return state().want_reap(link_.user());
    case Phase::kLost:
      if (!waits) return user_.finish();
      if (asks) session_->set_next(now);
      // The loop then calls go_on(), which plans the next attempt and the end of the connection.
      return state().want_reap(link_.user());
    case Phase::kAccepting:
      if (!waits) user_.begin_disconnect(Ending::kFailureTimeout);
      return;
    default:
      if (host().aborts()) return user_.begin_abort();
      if (!waits || !deadline_.set(time_limit, Deadline::Of::kLinger))
        user_.begin_disconnect(Ending::kFailureTimeout);
  }
}

void PathRecovery::ask_without_loop() noexcept {
  if (link_.stage.phase() != Phase::kResolving || setup_ == nullptr || setup_->addresses() != 0)
    return;
  give_up_attempt();
  session_->set_next(std::chrono::steady_clock::now());
  state().want_reap(link_.user());
}

void PathRecovery::ask_to_forget(ResumeMessage& message) noexcept {
  session_->asked_to_forget = asks_to_forget();
  if (!session_->asked_to_forget) return;
  message.reason = ResumeReason::kForget;
  message.total = session_->total();
}

// Handles the peer's request to end the session because it has closed. Called after the old network
// path was left, so that all bytes that arrived over it are counted.
void PathRecovery::forget(RdmaPending& request, const ResumeMessage& asked) {
  const std::uint64_t counted = link_.stream.inbound().line().total();
  ++state().statistics().forgotten;
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
    link_.path.name_peer(failure);
    return user_.end_with(std::move(failure));
  }
  link_.stream.on_peer_closed();
  const std::uint64_t missed = session_->missed_by(static_cast<std::uint32_t>(asked.received));
  if (missed == 0) return user_.on_peer_closed_without_path({});
  failure.text = fmt::format("the peer closed before it took the last {} bytes", missed);
  link_.path.name_peer(failure);
  user_.on_peer_closed_without_path(std::move(failure));
}

}}}  // namespace conn::rdma
