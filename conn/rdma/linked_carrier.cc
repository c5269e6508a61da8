// SPDX-License-Identifier: BSD-3-Clause
// Class LinkedCarrier, the life of an RDMA connection up to its end: it is established, messages
// arrive, requests complete, and chains of requests are posted. The end of a connection is in
// linked_carrier_end.cc.

#include "conn/rdma/linked_carrier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "conn/kit/probes.h"
#include "conn/rdma/device/verbs.h"
#include "conn/rdma/straight_path.h"
#include "conn/rdma/type.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
LinkedCarrier::LinkedCarrier(const ConnectionType& type, LoopState& state,
                             std::shared_ptr<const Settings> settings, Role role,
                             AcceptOwner* listener)
    : QueuedCarrier(type, state.ready()),
      link_(state, std::move(settings), role, *this),
      deadline_(state, *this),
      listener_(listener) {
  state.make_room(type.counters(state.loop()).open + 1);
}

LinkedCarrier::~LinkedCarrier() {
  drop_kept();
  deadline_.clear(loop());
  tear_down();
}

// --- set-up of the connection --------------------------------------------------------------------

// Called on both sides when the connection is established: enters phase kOpen, or kResending if
// this is a new network path of an existing connection.
void LinkedCarrier::on_set_up() {
  const bool again = lost();
  link_.stage.move(again ? Phase::kResending : Phase::kOpen);
  const CmId& id = link_.id();
  link_.path.set_ends(id.local(), id.peer());
  // The handshake has shown that the port is up, whatever the device reported before.
  link_.context()->device().on_port_event(id->port_num, false);
  if (session() != nullptr && setup_ != nullptr) session()->on_address(setup_->address());
  if (!again) move_to(State::kConnected);
  link_.stream.liveness().on_open(std::chrono::steady_clock::now());
  link_.state().look_at(*this, link_.stream.next_tick());
  link_.state().want_flush(*this);
  // Sets the deadline for the peer's first receive window. On the accepting side it has been
  // running since the connection request.
  if (!again && link_.role() == Role::kClient && awaits_first_window() &&
      !deadline_.set(link_.settings().accept_timeout, Deadline::Of::kAccept))
    return end_with(out_of_memory());
  if (again) {
    if (!recovery_->on_new_path()) end_with(out_of_memory());
    return;
  }
  if (listener_ != nullptr) listener_->on_established(*this);
  update_ready();
}

void LinkedCarrier::on_set_up_failed(Failure why) noexcept {
  if (lost()) return recovery_->on_attempt_failed(std::move(why));
  end_with(std::move(why));
}

void LinkedCarrier::on_cm_event(const CmEvent& event) {
  if (ends_connect(event)) link_.stage.advance(Handshake::kAnswered);
  try {
    switch (link_.stage.phase()) {
      case Phase::kDead:
        return;
      case Phase::kLost:
        if (event.type == RDMA_CM_EVENT_DISCONNECTED) link_.stage.advance(Handshake::kGone);
        if (event.type != RDMA_CM_EVENT_DEVICE_REMOVAL || link_.context() == nullptr) return;
        link_.context()->set_lost();
        return link_.state().want_reap(*this);
      case Phase::kResolving:
      case Phase::kConnecting:
        setup_->on_event(event);
        if (link_.stage.open()) setup_.reset();
        return;
      default:
        break;
    }
    switch (event.type) {
      case RDMA_CM_EVENT_ESTABLISHED:
        link_.stage.advance(Handshake::kKnown);
        if (link_.stage.phase() == Phase::kAccepting) return on_set_up();
        if (link_.stage.phase() != Phase::kDisconnecting) return;
        if (ending_.on_known()) finish();
        return;
      case RDMA_CM_EVENT_DISCONNECTED:
        return peer_closed();
      case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        return;
      case RDMA_CM_EVENT_DEVICE_REMOVAL:
        link_.context()->set_lost();
        end_path({std::make_error_code(std::errc::no_such_device), rdma::describe(event)});
        // The wait for the peer's answer to our disconnect ends, because no answer can arrive
        // through a removed device, and the kernel waits until the rdma_cm id is destroyed.
        if (link_.stage.phase() == Phase::kDisconnecting) finish();
        return;
      // The peer sends a reject if it does not know this connection, so the connection ends.
      case RDMA_CM_EVENT_REJECTED:
        break;
      default:
        // The event reports an assumption of rdma_cm, for example that a link-layer address has
        // changed or that one of its own messages was lost. Such an event must not end an
        // established connection, whose queue pair may still work. So the network path is only
        // probed.
        if (!link_.stage.open()) break;
        link_.stream.ask_path();
        return link_.state().want_flush(*this);
    }
    if (event.type != RDMA_CM_EVENT_ADDR_CHANGE) link_.stage.advance(Handshake::kGone);
    end_path({std::make_error_code(std::errc::connection_reset), rdma::describe(event)});
  } catch (const std::exception&) {
    end_with(out_of_memory());
  }
}

// --- handling messages of the peer ---------------------------------------------------------------

void LinkedCarrier::on_immediate(std::uint32_t length) {
  if (posting_.goes_straight() && link_.stage.phase() == Phase::kOpen &&
      link_.stream.take_straight(length, link_.state().now())) [[likely]] {
    // The message may prove that the peer has free posted receives, for which written bytes may be
    // waiting.
    if (link_.sender.queue().staged() != 0) link_.state().want_flush(*this);
    return reader_.has_view() ? update_ready() : update_readable();
  }
  // Handles the messages that take_straight(), the fast path above, does not. Not inlined, so that
  // the fast path need not save the registers that this code needs.
  const auto on_other = [this](std::uint32_t bytes) __attribute__((noinline)) {
    // The first message may come before rdma_cm has read the peer's last handshake message, so the
    // connection is established here too.
    if (link_.stage.phase() == Phase::kAccepting) on_set_up();
    posting_.on_first_message();
    Stream& stream = link_.stream;
    const std::uint32_t changes = stream.inbound().window_changes();
    stream.on_data(bytes, link_.state().now());
    if (stream.inbound().window_changes() != changes || stream.failure() != nullptr ||
        !link_.stage.in_use())
      return after_input();
    if (link_.sender.queue().staged() != 0 || stream.outbound().end().finish_is_due())
      link_.state().want_flush(*this);  // the peer may have new receives for the waiting data
    update_ready();
  };
  on_other(length);
}

void LinkedCarrier::on_message(std::span<const std::byte> bytes) {
  if (link_.stage.phase() == Phase::kAccepting) on_set_up();
  posting_.on_first_message();
  ++link_.state().statistics().control_received;
  link_.stream.on_control(bytes, link_.state().now());
  // Cancels the deadline for the peer's first receive window. In phase kResending (a new network
  // path after a loss), a deadline that is set limits a close() and must stay; in kStreamOver, it
  // limits the wait for rdma_cm.
  if (link_.stage.in_use() && link_.stage.phase() != Phase::kResending &&
      ending_.at() != EndStep::kStreamOver && !awaits_first_window())
    deadline_.clear(loop());
  after_input();
}

void LinkedCarrier::after_input() {
  if (link_.stage.ended()) return update_ready();
  Stream& stream = link_.stream;
  LoopStatistics& statistics = link_.state().statistics();
  if (const char* why = stream.failure(); why != nullptr) {
    if (stream.lacks_memory()) return end_with(out_of_memory());
    ++statistics.protocol_errors;
    if (stream.excess() == Excess::kMessages) ++statistics.control_floods;
    if (stream.excess() == Excess::kWindow) ++statistics.peer_windows_refused;
    // Stops the queue pair at once, because the disconnect may have to wait and the peer must not
    // be able to do anything meanwhile.
    link_.stop();
    return end_with({std::make_error_code(std::errc::protocol_error), why}, Unread::kDrop);
  }
  if (stream.peer_end().aborted())
    return end_with(
        {std::make_error_code(std::errc::connection_reset), "the peer aborted the connection"});
  if (link_.stage.phase() == Phase::kLost) return update_ready();
  if (stream.peer_end().finished() && reader_.is_first_to_report_end() && !closing())
    host().peer_gone();
  link_.manage_windows();
  if (const char* why = stream.failure(); why != nullptr) {
    const Failure& memory = link_.windows.failure();
    return end_with({memory.code, fmt::format("{}: {}", why, memory.text)});
  }
  if (!link_.stage.open()) return;
  if (link_.sender.queue().staged() != 0 ||
      (stream.may_have_control() && stream.next_control(link_.state().now())))
    link_.state().want_flush(*this);
  update_ready();
}

// --- handling completions ------------------------------------------------------------------------

void LinkedCarrier::on_sends_done(std::uint32_t sequence) {
  const ae::TimePoint now = link_.state().now();
  if (link_.sender.retire(sequence, now, link_.settings().limit()) &&
      posting_.on_memory_back(host()))
    update_ready();
  if (link_.stage.phase() == Phase::kLost && link_.pair.stopped()) return;
  link_.stream.liveness().on_confirmed(now);
  link_.on_keys_changed();
  if (!link_.stage.open()) return;
  // The completed requests have freed slots of the send queue, for which other requests may be
  // waiting.
  link_.state().want_flush(*this);
  if (link_.stage.phase() == Phase::kClosing) return continue_close();
  update_ready();
}

// --- posting requests, and waiting for memory ----------------------------------------------------

void LinkedCarrier::on_memory() noexcept {
  if (posting_.secure_memory(host())) {
    if (link_.stage.phase() == Phase::kResending) link_.state().want_flush(*this);
    return update_ready();
  }
  link_.state().wait_for_memory(*this);
}

void LinkedCarrier::post_due() noexcept {
  if (inherited()) return;
  if (ending_.at() == EndStep::kNone && posting_.post_straight(host())) [[likely]]
    return;
  // Posts what post_straight(), the fast path above, does not. Not inlined, so that the fast path
  // need not save the registers that this code needs.
  const auto post_others = [this]() __attribute__((noinline)) {
    if (!link_.stage.open() || ending_.at() == EndStep::kStreamOver) return;
    try {
      if (link_.stage.phase() == Phase::kResending) recovery_->resend();
      std::optional<Posting::Refusal> refusal = posting_.post_due(host());
      if (!refusal) return;
      if (!refusal->stopped) return end_with(std::move(refusal->why));
      if (link_.path.iwarp()) return wait_for_stream_over();
      // The completion of an earlier request that failed states the reason better than the refusal
      // of this one.
      link_.drain();
      end_path(std::move(refusal->why));
    } catch (const std::exception&) {
      end_with(out_of_memory());
    }
  };
  post_others();
}

// --- reading by the user -------------------------------------------------------------------------

bool LinkedCarrier::end_view() noexcept {
  const bool waited = reader_.end_view();
  if (session() != nullptr) session()->viewed.reset();
  link_.release_kept(false);
  return waited;
}

void LinkedCarrier::on_window_read() {
  if (link_.stream.inbound().left_over() == 0) (void)reader_.exchange_copy(nullptr);
  after_input();
}

// --- periodic checks -----------------------------------------------------------------------------

void LinkedCarrier::on_tick(ae::TimePoint now, ae::Duration late) noexcept {
  LoopState& state = link_.state();
  try {
    if (lost()) return recovery_->go_on();
    if (link_.stage.open()) {
      // If this periodic check is late by more than a third of the keepalive interval (at least
      // kLeast, at most kLongest), our own loop was stopped, and messages of the peer may have
      // arrived without being processed.
      constexpr ae::Duration kLongest = std::chrono::seconds(1);
      constexpr ae::Duration kLeast = std::chrono::milliseconds(25);
      const ae::Duration third = link_.settings().keepalive / 3;
      const ae::Duration much =
          third == third.zero() ? kLongest : std::clamp(third, kLeast, kLongest);
      link_.stream.tick(now, late > much);
      const char* why = link_.stream.failure();
      if (why == nullptr) why = link_.stream.liveness().dead();
      if (why != nullptr) {
        ++state.statistics().peers_dead;
        ending_.set_unreachable();
        return end_path({std::make_error_code(std::errc::timed_out), why});
      }
      StagingQueue& queue = link_.sender.queue();
      if (queue.held() == 0) queue.trim();
      if (link_.stream.liveness().wants_probe() || now >= link_.sender.ask_at())
        state.want_flush(*this);
      after_input();
    }
    // Plans the next periodic check: for an open connection, at the time that it needs; before and
    // during the set-up, at a fixed interval.
    constexpr ae::Duration kLater = std::chrono::seconds(3);
    if (link_.stage.open()) {
      ae::TimePoint next = next_tick();
      if (link_.stream.inbound().has_long_window()) next = std::min(next, now + kLater);
      state.look_at(*this, std::max(next, now + TickWheel::kWidth));
    } else if (!link_.stage.ended()) {
      state.look_at(*this, now + kLater);
    }
  } catch (const std::exception&) {
    end_with(out_of_memory());
  }
}

}}}  // namespace conn::rdma
