// SPDX-License-Identifier: BSD-3-Clause
// Class LinkedCarrier, the end of an RDMA connection: by its user, by its peer, by a deadline, or
// by the device.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "conn/kit/probes.h"
#include "conn/rdma/linked_carrier.h"
#include "conn/rdma/session.h"
#include "conn/rdma/type.h"
#include "conn/rdma/work_failure.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

// --- loss of the network path --------------------------------------------------------------------

PathRecovery::Around LinkedCarrier::around() noexcept {
  const auto& type_here = static_cast<const RdmaType&>(type());
  return {link_, deadline_, ending_, posting_, reader_, setup_, *this, type_here.addresses(),
          *this, *this};
}

void LinkedCarrier::end_path(Failure failure) noexcept {
  if (link_.stage.ended() || link_.stage.phase() == Phase::kLost) return;
  if (lost()) return recovery_->on_attempt_failed(std::move(failure));
  if (recovery_ == nullptr || !recovery_->lose_path(failure)) end_with(std::move(failure));
}

void LinkedCarrier::on_peer_closed_without_path(Failure missed) noexcept {
  if (!closing()) {
    if (missed) pending_failure_ = std::move(missed);
    host().peer_gone();
  }
  finish();
  update_ready();
}

// --- failures of requests, devices and peers -----------------------------------------------------

void LinkedCarrier::on_work_failed(ibv_wc_status status, bool was_send, std::uint32_t sequence) {
  if (was_send &&
      link_.sender.retire_failed(sequence, link_.state().now(), link_.settings().limit()) &&
      posting_.on_memory_back(host()))
    update_ready();
  if (link_.stage.ended()) {  // the connection is ending already; its remaining requests fail
    if (ending_.is_over()) on_deadline(Deadline::Of::kQuiet);
    return;
  }
  if (link_.stage.phase() == Phase::kLost && link_.pair.stopped()) {
    if (link_.quiet()) link_.state().want_reap(*this);
    return;
  }
  const bool was_bind = was_send && link_.windows.is_bound_by(sequence);
  // While it is unknown whether the device can bind keys (memory windows), several error statuses
  // of a bind show that it cannot. Later only IBV_WC_MW_BIND_ERR does.
  Device& device = link_.context()->device();
  const bool unsure = device.binding() == Device::Binding::kUnsure;
  if (was_bind && (unsure ? shows_inability(status) : status == IBV_WC_MW_BIND_ERR))
    device.give_up_binding();
  if (link_.take_proving()) return;
  if (status == IBV_WC_WR_FLUSH_ERR && device.iwarp() && link_.stage.open())
    return wait_for_stream_over();
  if (status == IBV_WC_RNR_RETRY_EXC_ERR)
    AECONN_PROBE(rnr, host().id(), link_.stream.outbound().proof().unproven(), 1);
  if (status == IBV_WC_RETRY_EXC_ERR) {
    ++link_.state().statistics().peers_dead;
    ending_.set_unreachable();
  }
  // On soft-RoCE, sending a disconnect without a route would permanently break the device's queue
  // pair for connection management.
  if (status == IBV_WC_LOC_QP_OP_ERR && device.asks_port_first()) link_.on_no_route();
  if (may_be_the_path(status)) return end_path(describe_work_failure(status, was_send));
  end_with(describe_work_failure(status, was_send));
}

// On iWARP the queue pair fails when the peer ends its TCP stream: requests are flushed, and the
// driver refuses new ones. rdma_cm reports later whether the peer closed the connection.
void LinkedCarrier::wait_for_stream_over() {
  if (ending_.stream_over() && !deadline_.set(Ending::kFailureTimeout, Deadline::Of::kStreamOver))
    on_deadline(Deadline::Of::kStreamOver);
}

void LinkedCarrier::on_event(const QueuePairEvent& event) {
  using enum QueuePairEvent::Kind;
  const Phase phase = link_.stage.phase();
  switch (event.kind) {
    // Data may arrive before rdma_cm has read the peer's last message of the handshake. The arrival
    // of data shows that the connection is established.
    case kDataBeforeEstablished:
      if (phase == Phase::kAccepting) on_set_up();
      return;
    // The device has stopped the queue pair because of an error of the peer. Some devices report
    // this by a separate event. On iWARP this event is the only report.
    case kRefusal: {
      const auto concerns = [this] {
        return link_.stage.open() || link_.stage.phase() == Phase::kAccepting;
      };
      if (!concerns()) return;
      link_.drain();  // the completion of a failed work request may state the reason better
      if (!concerns()) return;
      return end_with({std::make_error_code(std::errc::protocol_error),
                       fmt::format("{} stopped the queue pair: the peer wrote where it may not, or "
                                   "broke a rule of the transport",
                                   link_.context()->name())});
    }
    // A queue pair with shared receives is in the error state. If there was no other failure, the
    // peer has accessed memory that it may not access, or broken a rule of the transport. (A close
    // by the peer does not cause this event.)
    case kLastReceive:
      link_.pair.on_last_receive();
      if (phase == Phase::kLost) {
        if (link_.quiet()) link_.state().want_reap(*this);
        return;
      }
      if (phase != Phase::kDead) return on_event({.kind = kRefusal});
      if (ending_.is_over()) on_deadline(Deadline::Of::kQuiet);
      return;
    case kFailed: {
      DeviceContext* const context = link_.context();
      // The completion of a failed work request may state the reason better than this event.
      if (link_.stage.open() && context != nullptr && !context->lost()) link_.drain();
      Failure failure{std::make_error_code(std::errc::network_down), {}};
      try {
        failure.text = *event.what;
      } catch (const std::bad_alloc&) {  // no memory for the text: the failure has none
      }
      // Other addresses may be reached through another port or device.
      if (setup_ && link_.stage.connecting() && !lost() && setup_->give_up_address(failure)) return;
      end_path(std::move(failure));
      if (link_.stage.ended() && link_.context() != nullptr && link_.context()->lost()) finish();
      return;
    }
    // Ends the network path if the device's port has been down for longer than the device's retries
    // take. Shorter interruptions do not end it.
    case kPortDown: {
      const CmId& id = link_.id();
      if (!id || id->port_num != event.port || event.since < link_.retry_time()) return;
      ending_.set_unreachable();
      const std::string what = link_.context()->name() + ": the port has no link";
      return on_event({.kind = kFailed, .what = &what});
    }
    case kAddresses: {
      const SocketAddress local = link_.path.local();
      const auto is_ours = [&](const SocketAddress& each) { return each.same_host(local); };
      if (phase == Phase::kLost || local.size == 0 || std::ranges::any_of(*event.present, is_ours))
        return;
      return end_path({std::make_error_code(std::errc::address_not_available),
                       "the address " + local.host() + " is no longer on this machine"});
    }
  }
}

void LinkedCarrier::on_no_memory() noexcept { end_with(out_of_memory()); }

void LinkedCarrier::end_with(Failure failure, Unread unread) noexcept {
  if (link_.stage.ended()) return;
  const bool was_open = link_.stage.open() || lost();
  if (!closing()) {
    // Adds the peer's address to the failure's text. If lost() is true, lose_path() has done so.
    if (was_open && !lost()) link_.path.name_peer(failure);
    if (was_open && unread == Unread::kKeep && link_.stream.inbound().has_unread())
      pending_failure_ = std::move(failure);
    else
      fail(std::move(failure));
    // Called after the failure is recorded, because the user may then call why_ended().
    if (was_open) host().peer_gone();
  }
  if (link_.stage.phase() == Phase::kIdle || link_.stage.phase() == Phase::kResolving ||
      link_.stage.phase() == Phase::kLost)
    finish();
  else
    begin_disconnect(Ending::kFailureTimeout);
  update_ready();
}

void LinkedCarrier::peer_closed() {
  link_.stage.advance(Handshake::kGone);
  if (link_.stage.phase() == Phase::kDisconnecting) return finish();
  if (lost())
    return end_path({std::make_error_code(std::errc::connection_reset), "the peer went away"});
  // On iWARP rdma_cm reports DISCONNECTED even if the device has ended the stream. The device's own
  // event states the reason, so it is handled first.
  if (ending_.at() == EndStep::kStreamOver) link_.context()->on_async_event();
  if (link_.stage.ended() || link_.stage.phase() == Phase::kLost) return;
  // Data that the peer sent before its close is in the completion queue already, because the peer
  // waits for the acknowledgement of the data before it closes. The close may also be the first
  // sign that the connection was established.
  if (link_.stage.in_use() || link_.stage.phase() == Phase::kAccepting) link_.drain();
  if (link_.stage.ended() || link_.stage.phase() == Phase::kLost) return;
  if (link_.stage.in_use()) {
    if (link_.stream.peer().tells_end() && !link_.stream.peer_end().finished())
      return end_path({std::make_error_code(std::errc::connection_reset),
                       "the connection was cut before the peer ended its stream"});
    // A peer whose connection can continue over another network path (which has a session)
    // announces a close by the message kFinished. This peer has not, so it has not closed but lost
    // its path.
    if (session() != nullptr && !link_.stream.peer_end().leaves())
      return end_path({std::make_error_code(std::errc::connection_reset),
                       "the connection was cut while the peer still read"});
    link_.stream.on_peer_closed();
    const std::size_t staged = link_.sender.queue().staged();
    if (staged != 0 && !closing())
      pending_failure_ = {std::make_error_code(std::errc::connection_reset),
                          fmt::format("rdma {}: the peer closed before it took the last {} bytes",
                                      link_.path.peer().to_string(), staged)};
    host().peer_gone();
  } else if (link_.stage.phase() == Phase::kAccepting) {
    fail({std::make_error_code(std::errc::connection_reset), "the peer went away"});
  }
  begin_disconnect(Ending::kFailureTimeout);
  update_ready();
}

void LinkedCarrier::on_deadline(Deadline::Of what) {
  const Phase phase = link_.stage.phase();
  switch (what) {
    case Deadline::Of::kAddress:
      if (setup_) setup_->on_deadline();
      return;
    case Deadline::Of::kAccept:
      if (phase != Phase::kAccepting && (!link_.stage.in_use() || !awaits_first_window())) return;
      return end_path({std::make_error_code(std::errc::timed_out),
                       phase == Phase::kAccepting
                           ? "the peer did not finish setting up the connection"
                           : "the peer connected but never offered a window"});
    case Deadline::Of::kLinger:
      if (phase != Phase::kClosing && phase != Phase::kResending) return;
      // The remaining data is lost. The peer must not mistake what it has received for the whole
      // stream, so the stream is aborted.
      if (!link_.stream.outbound().end().aborted() && posting_.has_undelivered())
        return begin_abort();
      return begin_disconnect(Ending::kFailureTimeout);
    case Deadline::Of::kDisconnect:
      if (phase != Phase::kDisconnecting) return;
      ending_.on_no_answer();
      return finish();
    case Deadline::Of::kStreamOver:
      return end_with(describe_work_failure(IBV_WC_WR_FLUSH_ERR, false));
    case Deadline::Of::kQuiet:
      deadline_.clear(loop());
      return link_.state().want_reap(*this);
  }
}

// --- closing by the user -------------------------------------------------------------------------

void LinkedCarrier::begin_close() noexcept {
  ae::Duration linger = link_.settings().linger;
  // With linger=0 no bytes are delivered. But if the connection can continue over another network
  // path (there is a session), the peer would mistake a disconnect for the loss of the path. So it
  // is told that the stream is aborted or, after shutdown(), that it is finished.
  if (linger == ae::Duration::zero() && session() != nullptr) {
    if (!link_.stream.outbound().end().finished(false)) return begin_abort();
    linger = Ending::kFailureTimeout;
  }
  deadline_.clear(loop());
  if (linger == ae::Duration::zero()) return begin_disconnect(Ending::kFailureTimeout);
  link_.stage.move(Phase::kClosing);
  ending_.set_close_by(std::chrono::steady_clock::now() + linger);
  if (!deadline_.set(linger, Deadline::Of::kLinger))
    return begin_disconnect(Ending::kFailureTimeout);
  link_.state().want_flush(*this);
  continue_close();
}

// Tells the peer by a control message that the stream is aborted, because a disconnect alone looks
// like a clean end of stream. The message follows the data that was posted before.
void LinkedCarrier::begin_abort() noexcept {
  deadline_.clear(loop());
  if (link_.stage.in_use()) link_.stage.move(Phase::kClosing);
  if (!link_.stream.outbound().abort() ||
      !deadline_.set(Ending::kFailureTimeout, Deadline::Of::kLinger))
    return begin_disconnect(Ending::kFailureTimeout);
  ending_.set_close_by(std::chrono::steady_clock::now() + Ending::kFailureTimeout);
  link_.state().want_flush(*this);
}

void LinkedCarrier::continue_close() noexcept {
  if (link_.stage.phase() != Phase::kClosing || link_.sender.requests().count() != 0) return;
  const bool counts_end = link_.stream.outbound().end().aborted() || posting_.finishes();
  if (counts_end ? posting_.has_undelivered() : link_.sender.queue().held() != 0) return;
  ending_.set_delivered();
  begin_disconnect(
      std::max(Ending::kFailureTimeout, ending_.close_by() - std::chrono::steady_clock::now()));
}

// --- disconnecting and tearing down --------------------------------------------------------------

void LinkedCarrier::begin_disconnect(ae::Duration time_limit) noexcept {
  LoopState& state = link_.state();
  deadline_.clear(loop());
  posting_.clear_pace(loop());
  link_.stage.move(Phase::kDisconnecting);
  state.remove(*this);
  const bool can_wait = deadline_.set(time_limit, Deadline::Of::kDisconnect);
  // Stopping the queue pair is deferred to a later iteration only inside a handler: outside a
  // handler, the loop may never run again.
  if (can_wait && state.loop().in_handler() && !state.iteration().has_share_left()) {
    ending_.queue_stop();
    return state.want_reap(*this);
  }
  if (ending_.stop() || !can_wait) finish();
}

void LinkedCarrier::finish() noexcept {
  if (link_.stage.phase() == Phase::kDead) return;
  deadline_.clear(loop());
  posting_.clear_pace(loop());
  link_.state().remove(*this);
  if (recovery_ != nullptr) recovery_->end();
  ending_.finish();
  link_.state().want_reap(*this);
  if (listener_ != nullptr && state() != State::kConnected) listener_->on_lost(*this);
}

void LinkedCarrier::reap() {
  if (link_.stage.phase() == Phase::kLost) return recovery_->go_on();
  // A new path is being set up already, after this call was scheduled for the loss of the old one.
  if (!link_.stage.ended()) return;
  if (link_.stage.phase() == Phase::kDisconnecting) {
    if (ending_.stop()) finish();
    return;
  }
  if (ending_.has_reports_to_come() && deadline_.set(Session::kQuietTime, Deadline::Of::kQuiet))
    return ending_.wait();
  deadline_.clear(loop());
  setup_.reset();  // cancels the look-up of a name, if one is still running
  tear_down();
  ending_.gone();
  link_.state().forget(*this);
  if (closing()) host().release();
}

void LinkedCarrier::tear_down() noexcept {
  posting_.clear_pace(loop());
  link_.destroy_queue_pair();
  // Copies unread bytes out of the receive windows before these are freed, so that the user can
  // still read the bytes.
  if (!link_.stream.inbound().released()) {
    std::unique_ptr<std::byte[]> copy;
    // Nothing is copied in a child of fork(), where the memory of the receive windows may not even
    // be mapped (madvise(2), MADV_DONTFORK).
    const bool keep = link_.stage.phase() == Phase::kDead && !inherited() &&
                      link_.stream.inbound().has_unread() && !closing() &&
                      // After shutdown_both() the state is kClosed, and unread bytes are dropped.
                      (state() == State::kConnected || host().keeps_unread());
    if (keep) {
      copy.reset(new (std::nothrow) std::byte[link_.stream.inbound().unread_bytes()]);
      // If there is no memory for the copy, the unread bytes are lost.
      if (copy == nullptr) pending_failure_ = out_of_memory();
    }
    link_.stream.inbound().leave_windows(copy.get());
    std::unique_ptr<std::byte[]> before = reader_.exchange_copy(std::move(copy));
    if (recovery_ != nullptr) recovery_->keep_viewed(std::move(before));
  }
  posting_.tell_references(host());
  link_.sender.drop_all();
  const std::error_code why = pending_failure_ ? pending_failure_.code : host().failure().code;
  if (const std::size_t count = link_.sender.queue().take_done(); count != 0)
    host().references_done(count, why ? why : std::make_error_code(std::errc::operation_canceled));
  link_.release(reader_.viewed());
}

void LinkedCarrier::drop_kept() noexcept {
  link_.sender.queue().commit(0);
  (void)end_view();
}

}}}  // namespace conn::rdma
