// SPDX-License-Identifier: BSD-3-Clause
// How a connection ends: closed by its user or by its peer, by a deadline, or by the device.

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cerrno>

#include "conn/kit/probes.h"
#include "conn/rdma/carrier.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// For the last reports of the device about a stopped queue pair, which take microseconds.
constexpr ae::Duration kQuietPatience = std::chrono::milliseconds(50);

Failure describe(ibv_wc_status status, bool was_send) {
  const auto made = [](std::errc code, std::string text) {
    return Failure{std::make_error_code(code), std::move(text)};
  };
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return made(std::errc::timed_out,
                  "the peer does not answer any more (transport retries "
                  "exhausted)");
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return made(std::errc::timed_out, "the peer posts no receives any more");
    case IBV_WC_REM_ACCESS_ERR:
      return made(std::errc::protocol_error,
                  "the peer's device refused our write: the window it offered is not writable");
    case IBV_WC_WR_FLUSH_ERR:
      return made(std::errc::connection_reset, "the connection was reset");
    default:
      return made(std::errc::io_error, fmt::format("{} failed: {}", was_send ? "send" : "receive",
                                                   ibv_wc_status_str(status)));
  }
}

}  // namespace

void RdmaCarrier::move_phase(Phase next) {
  assert(allowed(phase_, next));
  phase_ = next;
}

// --- deadlines -----------------------------------------------------------------------------------

bool RdmaCarrier::set_deadline(ae::Duration delay, void (RdmaCarrier::*expired)()) noexcept {
  clear_deadline();
  delay = std::max(delay, ae::Duration::zero());
  const auto handler = [this, expired, due = state_->now() + delay]() -> ae::Duration {
    if (inherited()) return timer_ = 0, ae::kNoMore;
    constexpr ae::Duration kStoodStill = std::chrono::milliseconds(20);
    constexpr ae::Duration kAgain = std::chrono::milliseconds(1);
    if (!state_->iteration().may_expire()) return kAgain;
    timer_ = 0;
    const Iteration::Spending spending(state_->iteration());
    // The awaited event may have arrived without being processed, if the loop stood still or this
    // handler was postponed. An accepting side finds it in its queue pair and needs no rdma_cm
    // event.
    const bool late = std::chrono::steady_clock::now() - due > kStoodStill;
    const bool all = late && expired == &RdmaCarrier::address_expired;
    take([&] { state_->catch_up(all ? Iteration::Most::kAll : Iteration::Most::kShare); });
    // Unless the processed events have set the next deadline.
    if (timer_ == 0) take([&] { (this->*expired)(); });
    return ae::kNoMore;
  };
  try {
    timer_ = state_->loop().add_time_event(delay, handler);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void RdmaCarrier::clear_deadline() noexcept {
  if (timer_ != 0 && loop() != nullptr) loop()->remove_time_event(timer_);
  timer_ = 0;
}

void RdmaCarrier::clear_pace() noexcept {
  if (pace_timer_ != 0 && loop() != nullptr) loop()->remove_time_event(pace_timer_);
  pace_timer_ = 0;
  pace_at_.reset();
}

void RdmaCarrier::address_expired() {
  if (phase_ != Phase::kResolving && phase_ != Phase::kConnecting) return;
  Failure failure{std::make_error_code(std::errc::timed_out), ""};
  failure.text = fmt::format("{} did not answer in time",
                             peer_.size != 0 ? peer_.to_string() : "the name service");
  resolution_.reset();
  if (time_left() <= ae::Duration::zero()) next_address_ = addresses_.size();
  on_address_failed(std::move(failure));
}

void RdmaCarrier::accept_expired() {
  if (phase_ != Phase::kAccepting && (phase_ != Phase::kOpen || stream_.has_peer_window())) return;
  end_with({std::make_error_code(std::errc::timed_out),
            phase_ == Phase::kAccepting ? "the peer did not finish setting up the connection"
                                        : "the peer connected but never offered a window"});
}

// Remaining data is lost, and the peer must not take what it received for the whole stream.
void RdmaCarrier::linger_expired() {
  if (phase_ != Phase::kClosing) return;
  if (!stream_.aborted() && has_undelivered()) return begin_abort();
  begin_disconnect(kFailurePatience);
}

void RdmaCarrier::disconnect_expired() {
  if (phase_ != Phase::kDisconnecting) return;
  path_failed_ = true;
  if (id_ && context_) ask_port();
  finish();
}

void RdmaCarrier::on_tick(ae::TimePoint now, ae::Duration late) noexcept {
  take([&] {
    if (phase_ == Phase::kOpen || phase_ == Phase::kClosing) {
      // If the tick is this late, our own loop stood still, and messages of the peer may not have
      // been processed yet.
      constexpr ae::Duration kLongest = std::chrono::seconds(1);
      constexpr ae::Duration kLeast = std::chrono::milliseconds(25);
      const ae::Duration third = settings_.keepalive / 3;
      const ae::Duration much =
          third == third.zero() ? kLongest : std::clamp(third, kLeast, kLongest);
      stream_.tick(now, late > much);
      if (const char* why = stream_.failure(); why != nullptr) {
        ++state_->statistics().peers_dead;
        path_failed_ = true;
        return end_with({std::make_error_code(std::errc::timed_out), why});
      }
      if (tx_.held() == 0) tx_.trim();
      if (stream_.wants_silent_probe() || now >= ask_at_) state_->want_flush(*this);
      after_input();
    }
    // From establishment on, the connection schedules its own checks.
    constexpr ae::Duration kLater = std::chrono::seconds(3);
    if (phase_ == Phase::kOpen || phase_ == Phase::kClosing) {
      ae::TimePoint next = next_tick();
      if (stream_.has_long_window()) next = std::min(next, now + kLater);
      state_->look_at(*this, std::max(next, now + TickWheel::kWidth));
    } else if (phase_ != Phase::kDisconnecting && phase_ != Phase::kDead)
      state_->look_at(*this, now + kLater);
  });
}

// --- failures ------------------------------------------------------------------------------------

void RdmaCarrier::on_cm_event(const CmEvent& event) {
  take([&] { handle(event); });
}

void RdmaCarrier::handle(const CmEvent& event) {
  if (ends_connect(event)) connect_under_way_ = false;
  if (phase_ == Phase::kDead) return;
  if (phase_ == Phase::kResolving || phase_ == Phase::kConnecting) return on_set_up_event(event);
  switch (event.type) {
    case RDMA_CM_EVENT_ESTABLISHED:
      cm_knows_ = true;
      if (phase_ == Phase::kDisconnecting) return stop_pending_ ? void() : send_disconnect();
      return on_communication_established();
    case RDMA_CM_EVENT_DISCONNECTED:
      return peer_closed();
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
      return;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      context_->set_lost();
      end_with({std::make_error_code(std::errc::no_such_device), conn::rdma::describe(event)});
      return finish();  // nothing will answer, and the kernel waits for us to release the id
    case RDMA_CM_EVENT_REJECTED:  // sent by the peer itself: it does not know this connection
      break;
    default:
      // rdma_cm's assumption about the network (a neighbour's or our own link-layer address has
      // changed) or about its own messages. Only the queue pair decides whether an established
      // connection ends: probe the path.
      if (phase_ != Phase::kOpen && phase_ != Phase::kClosing) break;
      stream_.ask_path();
      return state_->want_flush(*this);
  }
  peer_gone_ = event.type != RDMA_CM_EVENT_ADDR_CHANGE;
  end_with({std::make_error_code(std::errc::connection_reset), conn::rdma::describe(event)});
}

void RdmaCarrier::on_work_failed(ibv_wc_status status, bool was_send, std::uint32_t sequence) {
  if (was_send) retire_failed(sequence);
  if (phase_ == Phase::kDisconnecting || phase_ == Phase::kDead) return on_silence();  // by us
  const bool was_bind =
      was_send && key_to_change_ &&
      std::any_of(windows_.begin(), windows_.end(),
                  [&](const ReceiveWindow& window) { return window.is_bound_by(sequence); });
  // Whatever the status is: this device has never carried out a bind, and this failure is the
  // reason.
  const bool unsure = context_->device().binding() == Device::Binding::kUnsure;
  if (was_bind && unsure && (proving_ || status != IBV_WC_WR_FLUSH_ERR))
    context_->device().give_up_binding();
  if (std::exchange(proving_, false)) return;
  if (status == IBV_WC_WR_FLUSH_ERR && context_->device().iwarp() &&
      (phase_ == Phase::kOpen || phase_ == Phase::kClosing))
    return on_stream_over();
  if (status == IBV_WC_RNR_RETRY_EXC_ERR)
    AECONN_PROBE(rnr, host().id(), stream_.unproven_messages(), 1);
  if (status == IBV_WC_MW_BIND_ERR) context_->device().give_up_binding();
  if (status == IBV_WC_RETRY_EXC_ERR) {
    ++state_->statistics().peers_dead;
    path_failed_ = true;
  }
  end_with(describe(status, was_send));
}

// On iWARP the queue pair ends with the peer's stream, before rdma_cm reports whether that was a
// close.
void RdmaCarrier::on_stream_over() {
  if (std::exchange(stream_over_, true)) return;
  if (!set_deadline(kFailurePatience, &RdmaCarrier::stream_over_expired)) stream_over_expired();
}

void RdmaCarrier::stream_over_expired() { end_with(describe(IBV_WC_WR_FLUSH_ERR, false)); }

// A queue pair with shared receives is in its error state. If nothing else explains that, the peer
// did what its device was not allowed to do here, or broke a rule of the transport. (A close by the
// peer is reported by rdma_cm and does not cause this event.)
void RdmaCarrier::on_last_receive() {
  last_receive_ = true;
  if (phase_ == Phase::kDead) return on_silence();
  on_refusal();
}

// Some devices report this in an event of its own; on iWARP it is the only report, as the stream
// just ends.
void RdmaCarrier::on_refusal() {
  if (phase_ != Phase::kOpen && phase_ != Phase::kClosing && phase_ != Phase::kAccepting) return;
  context_->drain(*lease_.queue());  // a failed work request says more
  if (phase_ == Phase::kDisconnecting || phase_ == Phase::kDead) return;
  end_with({std::make_error_code(std::errc::protocol_error),
            fmt::format("{} stopped the queue pair: the peer wrote where it may not, or broke a "
                        "rule of the transport",
                        context_->name())});
}

void RdmaCarrier::on_device_event(const std::string& what) {
  const bool open = phase_ == Phase::kOpen || phase_ == Phase::kClosing;
  if (open && context_ && !context_->lost()) context_->drain(*lease_.queue());  // it may say more
  Failure failure{std::make_error_code(std::errc::network_down), {}};
  try {
    failure.text = what;
  } catch (const std::bad_alloc&) {  // then without the text
  }
  end_with(std::move(failure));
  if (context_ && context_->lost()) finish();
}

void RdmaCarrier::on_no_memory() noexcept { end_with(out_of_memory()); }

// A link flap that the retries survive ends nothing.
void RdmaCarrier::on_port_down(int port, ae::Duration since) {
  if (!id_ || id_->port_num != port || since < patience()) return;
  path_failed_ = true;
  on_device_event(context_->name() + ": the port has no link");
}

// Time until the retries without an answer are exhausted.
ae::Duration RdmaCarrier::patience() const noexcept {
  const QpTimeouts now = timeouts();
  return std::chrono::nanoseconds(4096) * (std::int64_t{1} << now.ack_timeout) *
         (now.retry_count + 1);
}

void RdmaCarrier::on_address_change(const std::vector<SocketAddress>& present) {
  const auto is_ours = [&](const SocketAddress& each) { return each.same_host(local_); };
  if (local_.size != 0 && std::none_of(present.begin(), present.end(), is_ours))
    end_with({std::make_error_code(std::errc::address_not_available),
              "the address " + local_.host() + " is no longer on this machine"});
}

// Only the first failure counts. Bytes that arrived before it can still be read; then it is
// reported.
void RdmaCarrier::end_with(Failure failure, Unread unread) noexcept {
  if (phase_ == Phase::kDisconnecting || phase_ == Phase::kDead) return;
  const bool was_open = phase_ == Phase::kOpen || phase_ == Phase::kClosing;
  if (!closing()) {
    if (was_open) name_peer(failure);
    if (was_open && unread == Unread::kKeep && stream_.has_unread())
      pending_failure_ = std::move(failure);
    else
      fail(std::move(failure));
    if (was_open) host().peer_gone();  // only now: why_ended() has the reason
  }
  if (phase_ == Phase::kIdle || phase_ == Phase::kResolving)
    finish();
  else
    begin_disconnect(kFailurePatience);
  update_ready();
}

void RdmaCarrier::name_peer(Failure& failure) const noexcept {
  try {
    const std::string peer = peer_.to_string();
    if (!peer.empty()) failure.text = fmt::format("rdma {}: {}", peer, failure.text);
  } catch (const std::bad_alloc&) {  // then without the peer's name
  }
}

void RdmaCarrier::peer_closed() {
  peer_gone_ = true;
  if (phase_ == Phase::kDisconnecting) return finish();
  // On iWARP this event also comes if the device ended the stream; the device's own event is first.
  if (stream_over_) context_->on_async_event();
  if (phase_ == Phase::kDisconnecting || phase_ == Phase::kDead) return;
  // Data sent before the close is in the queue already, because the peer had it acknowledged. The
  // close may also be the first sign that the connection was established.
  if (phase_ == Phase::kOpen || phase_ == Phase::kAccepting) context_->drain(*lease_.queue());
  if (phase_ == Phase::kDisconnecting || phase_ == Phase::kDead) return;
  if (phase_ == Phase::kOpen) {
    stream_.on_peer_closed();
    if (tx_.staged() != 0 && !closing())
      pending_failure_ = {std::make_error_code(std::errc::connection_reset),
                          fmt::format("rdma {}: the peer closed before it took the last {} bytes",
                                      peer_.to_string(), tx_.staged())};
    host().peer_gone();
  } else if (phase_ == Phase::kAccepting) {
    fail({std::make_error_code(std::errc::connection_reset), "the peer went away"});
  }
  begin_disconnect(kFailurePatience);
  update_ready();
}

// --- disconnecting and tearing down --------------------------------------------------------------

void RdmaCarrier::begin_disconnect(ae::Duration patience) noexcept {
  clear_deadline();
  clear_pace();
  move_phase(Phase::kDisconnecting);
  state_->remove(*this);
  const bool can_wait = set_deadline(patience, &RdmaCarrier::disconnect_expired);
  // Deferred only inside a handler: elsewhere the loop may not run again to do it.
  stop_pending_ = can_wait && state_->loop().in_handler() && !state_->iteration().has_share_left();
  if (stop_pending_) return state_->want_reap(*this);
  stop_and_disconnect();
  if (!can_wait) finish();
}

void RdmaCarrier::stop_and_disconnect() noexcept {
  const Iteration::Spending spending(state_->iteration());
  stop_pending_ = false;
  if (inherited()) return;
  if (id_ && context_) {
    const Device& device = context_->device();
    if (device.asks_port_first() || path_failed_ || device.port_down(id_->port_num)) ask_port();
  }
  // iWARP completes what its stream has taken, and the error state would reset the stream: after a
  // clean end, the disconnect follows the last byte without it.
  if (!(clean_end_ && context_->device().iwarp())) stop_queue_pair();
  // Before rdma_cm knows the connection, rdma_disconnect() would send nothing and report success.
  // (rdma_notify() is no solution: Linux then repeats its answer to the request for a minute, and
  // rdma_destroy_id() waits for the end of that.) ESTABLISHED will come, or the deadline.
  if (cm_knows_ || peer_gone_ || !can_say_goodbye()) send_disconnect();
}

void RdmaCarrier::stop_queue_pair() noexcept {
  if (qp_ && !inherited() && !std::exchange(stopped_, true)) qp_to_error(qp_.get());
}

void RdmaCarrier::ask_port() noexcept {
  if (!context_->device().ask_port(id_->port_num, std::chrono::steady_clock::now())) return;
  try {
    state_->devices().watch_ports();
  } catch (const std::exception&) {  // the next call starts the watch
  }
}

// Asks the peer to close, or confirms its close. If nothing can be sent, no answer will come.
void RdmaCarrier::send_disconnect() noexcept {
  const bool told = id_ && can_say_goodbye() && rdma_disconnect(id_.get()) == 0;
  if (peer_gone_ || !told) finish();
}

bool RdmaCarrier::can_say_goodbye() const noexcept {
  return !id_ || !context_ || !context_->device().port_down(id_->port_num);
}

void RdmaCarrier::continue_close() noexcept {
  if (phase_ != Phase::kClosing || posted_ != done_) return;
  if (stream_.aborted() ? has_undelivered() : tx_.held() != 0) return;
  clean_end_ = true;
  begin_disconnect(std::max(kFailurePatience, close_deadline_ - std::chrono::steady_clock::now()));
}

void RdmaCarrier::finish() noexcept {
  if (phase_ == Phase::kDead) return;
  clear_deadline();
  clear_pace();
  state_->remove(*this);
  move_phase(Phase::kDead);
  state_->want_reap(*this);
  if (listener_ != nullptr && state() != State::kConnected) listener_->on_lost(*this);
}

void RdmaCarrier::reap() {
  if (phase_ == Phase::kDisconnecting) return stop_and_disconnect();
  if (qp_ && live_) {
    stop_queue_pair();  // its deadline may have expired before reap() stopped it
    if (!waits_for_quiet_) {
      if (!quiet()) context_->on_async_event();
      waits_for_quiet_ = !quiet() && set_deadline(kQuietPatience, &RdmaCarrier::quiet_expired);
      if (waits_for_quiet_) return;
    }
  }
  waits_for_quiet_ = false;
  clear_deadline();
  tear_down();
  state_->forget(*this);
  if (closing()) host().release();
}

// When a queue pair is destroyed, some devices drop its remaining completions and receives of
// others with them (mlx5, bnxt_re, hns), and one still accesses it afterwards (irdma): so all
// completions must arrive first.
bool RdmaCarrier::quiet() const noexcept {
  if (!qp_ || !live_ || !context_ || context_->lost()) return true;
  return posted_ == done_ && (qp_->srq == nullptr || last_receive_);
}

void RdmaCarrier::on_silence() noexcept {
  if (phase_ == Phase::kDead && waits_for_quiet_ && quiet()) quiet_expired();
}

void RdmaCarrier::quiet_expired() {
  clear_deadline();
  state_->want_reap(*this);
}

void RdmaCarrier::tear_down() noexcept {
  clear_pace();
  const bool ours = !inherited();
  if (qp_ && context_) {
    if (ours && lease_.queue() != nullptr) context_->drain(*lease_.queue());
    context_->detach(qp_->qp_num);
  }
  // A key that is bound to a queue pair holds a reference to it: rxe waits for it in
  // ibv_destroy_qp().
  for (ReceiveWindow& window : windows_) window.drop_key();
  qp_.reset();
  // The number may be reused at once: no completions that name it may remain.
  if (ours && context_ && lease_.queue() != nullptr) context_->drain(*lease_.queue());
  receives_.reset();
  give_up_unread();
  tell_references({});
  tx_.clear();
  const std::error_code why = pending_failure_ ? pending_failure_.code : host().failure().code;
  tell_references(why ? why : std::make_error_code(std::errc::operation_canceled));
  if (domain_) {
    if (!viewed_)
      for (ReceiveWindow& window : windows_) window.drop();
    if (control_ != nullptr) domain_->local().release(std::exchange(control_, nullptr));
    state_->memory_came_back();
    if (viewed_ || tx_.reserving()) kept_ = domain_;
  }
  if (!kept_) tx_.use(nullptr, nullptr);
  rings_ = {};
  lease_ = {};
  domain_.reset();
  if (kept_ && kept_.use_count() == 1) kept_->leave_device();
  live_ = stopped_ = last_receive_ = false;
  if (ours && id_ && context_) {
    const bool wait = connect_under_way_ && context_->device().iwarp();
    if (wait || !can_say_goodbye()) {
      id_->context = nullptr;
      if (wait)
        context_->park_connecting(std::move(id_));
      else
        context_->park(std::move(id_));
    }
  }
  connect_under_way_ = false;
  context_.reset();
  id_.reset();
}

// Keeps unread bytes after the windows in which they arrived.
void RdmaCarrier::give_up_unread() noexcept {
  if (left_over_ != nullptr) return;  // done already
  // A child of fork() may not even have the pages (madvise(2), MADV_DONTFORK).
  const bool keep = phase_ == Phase::kDead && !inherited() && stream_.has_unread() && !closing() &&
                    state() == State::kConnected;  // not after shutdown_both()
  if (keep) {
    left_over_.reset(new (std::nothrow) std::byte[stream_.unread_bytes()]);
    if (left_over_ == nullptr) pending_failure_ = out_of_memory();  // and the bytes are lost
  }
  stream_.leave_windows(left_over_.get());
}

// The protocol has no half-close, so this ends the connection as close() does, but the object
// remains usable for queries.
int RdmaCarrier::shutdown_both() {
  drop_kept();
  pending_failure_ = {};
  move_to(State::kClosed);
  if (phase_ == Phase::kOpen) begin_close();
  update_ready();
  return 0;
}

void RdmaCarrier::begin_close() noexcept {
  clear_deadline();
  if (settings_.linger == ae::Duration::zero()) return begin_disconnect(kFailurePatience);
  move_phase(Phase::kClosing);
  close_deadline_ = std::chrono::steady_clock::now() + settings_.linger;
  if (!set_deadline(settings_.linger, &RdmaCarrier::linger_expired))
    return begin_disconnect(kFailurePatience);
  state_->want_flush(*this);
  continue_close();
}

// A disconnect looks the same whatever came before it, so a message tells the peer that this is an
// abort. It follows what the device has already taken.
void RdmaCarrier::begin_abort() noexcept {
  clear_deadline();
  if (phase_ == Phase::kOpen) move_phase(Phase::kClosing);
  if (!stream_.abort() || !set_deadline(kFailurePatience, &RdmaCarrier::linger_expired))
    return begin_disconnect(kFailurePatience);
  close_deadline_ = std::chrono::steady_clock::now() + kFailurePatience;
  state_->want_flush(*this);
}

void RdmaCarrier::close() noexcept {
  drop_kept();
  if (!waits_for_quiet_) clear_deadline();
  resolution_.reset();
  if (aborts() && (phase_ == Phase::kOpen || phase_ == Phase::kClosing)) return begin_abort();
  switch (phase_) {
    case Phase::kResolving:
    case Phase::kConnecting:
      told_of_silence();
      return finish();
    case Phase::kIdle:
      return finish();
    case Phase::kAccepting:
      return begin_disconnect(kFailurePatience);
    case Phase::kOpen:
      return begin_close();
    case Phase::kClosing:  // after shutdown_both()
      if (!set_deadline(close_deadline_ - std::chrono::steady_clock::now(),
                        &RdmaCarrier::linger_expired))
        begin_disconnect(kFailurePatience);
      return;
    case Phase::kDisconnecting:
      if (!set_deadline(kFailurePatience, &RdmaCarrier::disconnect_expired)) finish();
      return;
    case Phase::kDead:
      if (!waits_for_reap() && !waits_for_quiet_) host().release();
      return;
  }
}

void RdmaCarrier::abandon() noexcept {
  drop_kept();
  if (!inherited() && id_ &&
      (phase_ == Phase::kOpen || phase_ == Phase::kClosing || phase_ == Phase::kAccepting ||
       stop_pending_)) {
    const bool graceful = context_ && context_->device().iwarp() && !has_undelivered();
    if (!graceful) stop_queue_pair();
    if (can_say_goodbye() && !connect_under_way_)
      (void)rdma_disconnect(id_.get());  // best effort; the answer is not awaited
  }
  clear_deadline();
  resolution_.reset();
  state_->forget(*this);
  detach_list();
  phase_ = Phase::kDead;
  tear_down();
}

}}}  // namespace conn::rdma
