// SPDX-License-Identifier: BSD-3-Clause
// The life of a connection up to its end: it is established, messages arrive, requests complete,
// and chains of requests are posted. The end of a connection is in linked_carrier_end.cc.

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
namespace {

// How long to wait before posting again when the device reports a full send queue although fewer
// requests are in flight than it should hold.
constexpr ae::Duration kFullQueueRetry = std::chrono::milliseconds(1);

void count(Stall stall, LoopStatistics& statistics) noexcept {
  statistics.stalls_window += stall == Stall::kWindow ? 1 : 0;
  statistics.stalls_receives += stall == Stall::kReceives ? 1 : 0;
  statistics.stalls_send_queue += stall == Stall::kSendQueue ? 1 : 0;
}

}  // namespace

LinkedCarrier::LinkedCarrier(const ConnectionType& type, LoopState& state,
                             std::shared_ptr<const Settings> settings, Role role,
                             AcceptOwner* listener)
    : QueuedCarrier(type, state.ready()),
      link_(state, std::move(settings), role, {*this, *this}),
      ending_(link_),
      deadline_(state, *this),
      may_go_straight_(StraightPath::on),
      listener_(listener) {
  state.make_room(type.counters(state.loop()).open + 1);
}

LinkedCarrier::~LinkedCarrier() {
  drop_kept();
  deadline_.clear(loop());
  tear_down();
}

// --- set-up --------------------------------------------------------------------------------------

// Enters phase kOpen, on the connecting and on the accepting side.
void LinkedCarrier::on_set_up() {
  const bool again = session_ != nullptr && session_->lost();
  link_.stage.move(again ? Phase::kResending : Phase::kOpen);
  const CmId& id = link_.id();
  link_.path.set_ends(id.local(), id.peer());
  // The handshake has shown that the port works, whatever the device reported about it before.
  link_.context()->device().on_port_event(id->port_num, false);
  if (session_ != nullptr && setup_ != nullptr) session_->on_address(setup_->address());
  if (!again) move_to(State::kConnected);
  link_.stream.liveness().on_open(std::chrono::steady_clock::now());
  link_.state().look_at(*this, link_.stream.next_tick());
  link_.state().want_flush(*this);
  // Only the connecting side sets this deadline here: on the accepting side it has been running
  // since the request.
  if (!again && link_.role() == Role::kClient && awaits_first_window() &&
      !deadline_.set(link_.settings().accept_timeout, Deadline::Of::kAccept))
    return end_with(out_of_memory());
  if (again) {
    session_->on_path();
    ++link_.state().statistics().resumes;
    --link_.state().statistics().lost;
    deadline_.clear(loop());  // the deadline of the handshake
    if (session_->resumes_as() == Phase::kClosing &&
        !deadline_.set(close_deadline_ - std::chrono::steady_clock::now(), Deadline::Of::kLinger))
      return end_with(out_of_memory());
    host().path_changed();
    return resend();
  }
  if (listener_ != nullptr) listener_->on_established(*this);
  update_ready();
}

void LinkedCarrier::on_set_up_failed(Failure why) noexcept {
  if (session_ != nullptr && session_->lost()) return on_attempt_failed(std::move(why));
  end_with(std::move(why));
}

void LinkedCarrier::set_up(const Endpoint& to, ae::TimePoint until, std::size_t first) {
  const auto& type_here = static_cast<const RdmaType&>(type());
  const Setup::Around around{link_, deadline_, host(), *this, *this, type_here.addresses()};
  setup_ = std::make_unique<Setup>(around, to, until, first);
}

void LinkedCarrier::accept_path(const Answer& answer) {
  CmId& id = link_.id();
  const Settings& settings = link_.settings();
  const Phase phase = link_.stage.phase();
  Mtu mtu;
  for (;;) {
    renew_stream();
    if (answer.asked && session_ != nullptr && session_->lost())
      link_.stream.go_on(session_->confirmed(), *answer.asked);
    else if (answer.asked)
      link_.stream.on_hello(*answer.asked);
    link_.make();
    if (!link_.path.iwarp())
      mtu.agree(id.get(), settings.fabric, answer.asked ? answer.asked->mtu : 0,
                link_.context()->device().active_mtu(id->port_num, link_.state().now()),
                link_.path.device());
    link_.connect(mtu.agreed());
    if (link_.keys_work()) break;
    CmId kept = std::move(id);
    link_.tear_down();
    id = std::move(kept);
  }
  // Events of the device that were read meanwhile may have ended the attempt.
  if (link_.stage.phase() != phase) throw VerbsError("the device failed", ENODEV);
  waits_for_first_message_ = link_.path.iwarp();
  straight_ = may_go_straight_ && !waits_for_first_message_;
  if (!link_.path.iwarp() && settings.fabric.ece) answer_ece(id.get(), link_.queue_pair());
  Hello ours = link_.stream.hello();
  mtu.tell(ours);
  const Request data = answer.data(ours);
  rdma_conn_param parameters = link_.parameters(data.data());
  if (rdma_accept(id.get(), &parameters) != 0) throw VerbsError("rdma_accept", errno);
  link_.stage.advance(Handshake::kUnderWay);
  link_.stage.move(Phase::kAccepting);
}

// Called when the device reports the first data of the peer. That may come before rdma_cm has read
// the peer's last handshake message, so the connection is established here too.
void LinkedCarrier::on_communication_established() {
  if (link_.stage.phase() == Phase::kAccepting) on_set_up();
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
        if (link_.stage.phase() != Phase::kDisconnecting) return on_communication_established();
        if (ending_.on_known()) finish();
        return;
      case RDMA_CM_EVENT_DISCONNECTED:
        return peer_closed();
      case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        return;
      case RDMA_CM_EVENT_DEVICE_REMOVAL:
        link_.context()->set_lost();
        end_path({std::make_error_code(std::errc::no_such_device), rdma::describe(event)});
        // The device is removed: no answer will come, and the kernel waits until the rdma_cm id is
        // released.
        if (link_.stage.phase() == Phase::kDisconnecting) finish();
        return;
      // This event comes from the peer itself, which does not know this connection; so the
      // connection ends.
      case RDMA_CM_EVENT_REJECTED:
        break;
      default:
        // The event reports an assumption of rdma_cm about the network (the link-layer address of a
        // neighbour or our own has changed) or about its own messages. Whether an established
        // connection ends is decided by its queue pair alone, so this only probes the path.
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

// --- messages that arrived -----------------------------------------------------------------------

void LinkedCarrier::on_immediate(std::uint32_t length) {
  if (straight_ && link_.stage.phase() == Phase::kOpen &&
      link_.stream.take_straight(length, link_.state().now())) [[likely]] {
    // The message may prove that the peer has free receives again; staged data may have waited for
    // them.
    if (link_.sender.queue().staged() != 0) link_.state().want_flush(*this);
    return reader_.has_view() ? update_ready() : update_readable();
  }
  on_communication_established();
  on_first_message();
  Stream& stream = link_.stream;
  const std::uint32_t turns = stream.inbound().window_turns();
  stream.on_data(length, link_.state().now());
  if (stream.inbound().window_turns() != turns || stream.failure() != nullptr ||
      !link_.stage.in_use())
    return after_input();
  if (link_.sender.queue().staged() != 0 || stream.outbound().end().finish_is_due())
    link_.state().want_flush(*this);  // the peer may have free receives again
  update_ready();
}

// iWARP: the accepting side may send once the first message of the connecting side has arrived.
void LinkedCarrier::on_first_message() noexcept {
  if (!std::exchange(waits_for_first_message_, false)) return;
  straight_ = may_go_straight_;
  link_.state().want_flush(*this);
}

void LinkedCarrier::on_message(std::span<const std::byte> bytes) {
  on_communication_established();
  on_first_message();
  ++link_.state().statistics().control_received;
  link_.stream.on_control(bytes, link_.state().now());
  // In phase kResending a deadline that is set belongs to a close(), and must stay.
  if (link_.stage.in_use() && link_.stage.phase() != Phase::kResending && !awaits_first_window())
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
    // Stops the queue pair, so that the misbehaving peer can do nothing more even if the disconnect
    // must wait.
    link_.stop();
    return end_with({std::make_error_code(std::errc::protocol_error), why}, Unread::kDrop);
  }
  if (stream.peer_end().aborted())
    return end_with(
        {std::make_error_code(std::errc::connection_reset), "the peer aborted the connection"});
  if (link_.stage.phase() == Phase::kLost) return update_ready();
  if (stream.peer_end().finished() && !std::exchange(told_of_end_, true) && !closing())
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

// --- requests that completed ---------------------------------------------------------------------

void LinkedCarrier::on_sends_done(std::uint32_t sequence) {
  const ae::TimePoint now = link_.state().now();
  if (link_.sender.retire(sequence, now, link_.settings().limit())) on_memory_back();
  if (link_.stage.phase() == Phase::kLost && link_.stopped()) return;
  link_.stream.liveness().on_confirmed(now);
  link_.on_keys_changed();
  if (!link_.stage.open()) return;
  // The completed requests have freed slots in the send queue; requests may be waiting for them.
  link_.state().want_flush(*this);
  if (link_.stage.phase() == Phase::kClosing) return continue_close();
  update_ready();
}

void LinkedCarrier::on_memory_back() noexcept {
  tell_references();
  if (link_.sender.starved() && secure_memory()) update_ready();
  link_.state().memory_came_back();
}

void LinkedCarrier::tell_references() noexcept {
  if (const std::size_t count = link_.sender.queue().take_done(); count != 0)
    host().references_done(count, {});
}

// --- memory to send from -------------------------------------------------------------------------

void LinkedCarrier::wait_for_memory(std::size_t size) {
  link_.sender.starve(size, link_.state().now());
  link_.state().wait_for_memory(*this);
  if (link_.sender.requests_in_flight() != 0)
    // Posting requests may lead to completions, which free memory that this connection's own
    // requests hold.
    link_.state().want_flush(*this);
}

// Allocates the memory that the user's write handler waits for. Returns false if there is still not
// enough memory.
bool LinkedCarrier::secure_memory() noexcept {
  return link_.sender.secure(link_.stage.phase() == Phase::kOpen && host().wants_write(),
                             link_.settings().limit());
}

void LinkedCarrier::on_memory() noexcept {
  if (secure_memory()) {
    if (link_.stage.phase() == Phase::kResending) link_.state().want_flush(*this);
    return update_ready();
  }
  link_.state().wait_for_memory(*this);
}

// --- posting -------------------------------------------------------------------------------------

// Posts what is staged, if nothing else is due. Returns false if nothing was posted.
bool LinkedCarrier::post_straight() noexcept {
  if (!straight_ || link_.stage.phase() != Phase::kOpen || ending_.at() != EndStep::kNone ||
      delivering_ || link_.windows.may_have_key_to_change())
    return false;
  const std::uint32_t bytes = link_.sender.post_straight(link_.queue_pair(), link_.state().now());
  if (bytes == 0) return false;
  LoopStatistics& statistics = link_.state().statistics();
  ++statistics.doorbells;
  ++statistics.work_requests;
  statistics.inline_sends += bytes <= link_.sender.inline_limit() ? 1 : 0;
  AECONN_PROBE(post, host().id(), bytes, std::size_t{1});
  pace_.at.reset();
  if (due() > link_.sender.ask_at()) link_.state().look_at(*this, link_.sender.ask_at());
  return true;
}

void LinkedCarrier::post_due() noexcept {
  if (inherited()) return;
  if (post_straight()) [[likely]]
    return;
  if (!link_.stage.open() || ending_.at() == EndStep::kStreamOver) return;
  // On iWARP the connecting side must send the first message (RFC 5044, 7.1), so the accepting side
  // posts nothing before that message has arrived.
  if (waits_for_first_message_) return;
  try {
    if (link_.stage.phase() == Phase::kResending) resend();
    while (post_chain()) {
    }
    // The end of the stream follows its last byte.
    if (link_.stage.phase() != Phase::kOpen && link_.stage.phase() != Phase::kResending &&
        finishes() && link_.sender.queue().staged() == 0 && !link_.sender.queue().reserving() &&
        link_.stream.outbound().finish(link_.stage.phase() == Phase::kClosing))
      while (post_chain()) {
      }
    if (link_.sender.has_idle_work())
      count(link_.sender.on_idle(link_.state().now()), link_.state().statistics());
    // No timer is needed for a key change that must be alone on the send queue: it holds back
    // everything else, and its completion leads to the next call of this function.
    pace_.at = link_.keys_go_alone() && link_.windows.has_key_to_change()
                   ? std::nullopt
                   : link_.stream.outbound().retry_at(link_.sender.queue().staged());
    if (link_.sender.was_refused()) pace_.at = std::chrono::steady_clock::now() + kFullQueueRetry;
    if (!pace_.at || pace_.timer != 0) return;
    link_.state().keep_pace_of(*this);
    pace_.timer = link_.state().loop().add_time_event(*pace_.at, [this] {
      pace_.timer = 0;
      link_.state().want_flush(*this);
      return ae::kNoMore;
    });
  } catch (const std::exception&) {
    end_with(out_of_memory());
  }
}

// Posts one chain of the requests that are due. Returns true if another chain should be posted at
// once.
bool LinkedCarrier::post_chain() {
  using How = Sender::Posted::How;
  const bool prove = link_.stage.phase() != Phase::kOpen || delivering_;
  const Sender::Posted posted = link_.sender.post(
      link_.queue_pair(), link_.windows, link_.keys_go_alone(), prove, link_.state().now());
  if (posted.how == How::kNothing) return false;
  LoopStatistics& statistics = link_.state().statistics();
  ++statistics.doorbells;
  statistics.work_requests += posted.requests;
  statistics.inline_sends += posted.inlined;
  statistics.control_sent += posted.control;
  AECONN_PROBE(post, host().id(), posted.bytes, posted.requests);
  tell_references();
  const ae::TimePoint ask_at = link_.sender.ask_at();
  if (posted.asks && due() > ask_at) link_.state().look_at(*this, ask_at);
  switch (posted.how) {
    case How::kNothing:
    case How::kDone:
      return false;
    case How::kMore:
      return true;
    case How::kKeyRefused:
      if (link_.on_key_refused(*posted.window)) return true;
      end_with(bind_failure(*link_.context(), link_.settings(), EOPNOTSUPP));
      return false;
    case How::kFailed:
      break;
  }
  // The driver does not say which request failed. If it may have been a key change, the device
  // counts as unable to bind keys.
  Device& device = link_.context()->device();
  if (posted.maybe_key && device.binding() == Device::Binding::kUnsure) device.give_up_binding();
  end_with(errno_failure(posted.error, "posting to the send queue"));
  return false;
}

void LinkedCarrier::Pace::clear(ae::EventLoop* loop) noexcept {
  if (timer != 0 && loop != nullptr) loop->remove_time_event(timer);
  timer = 0;
  at.reset();
}

bool LinkedCarrier::has_undelivered() const noexcept {
  if (!link_.stage.open()) return false;
  if (link_.stage.phase() == Phase::kResending) return true;
  if (link_.stream.outbound().end().aborted())
    return link_.sender.requests_in_flight() != 0 || link_.stream.next_control(link_.state().now());
  if (link_.stage.phase() != Phase::kOpen && finishes() &&
      (!link_.stream.outbound().end().finished(link_.stage.phase() == Phase::kClosing) ||
       link_.sender.requests_in_flight() != 0))
    return true;
  return link_.sender.queue().staged() != 0 || link_.sender.data_under_way();
}

// --- time-outs and ticks -------------------------------------------------------------------------

void LinkedCarrier::on_tick(ae::TimePoint now, ae::Duration late) noexcept {
  LoopState& state = link_.state();
  try {
    if (session_ != nullptr && session_->lost()) return go_on_without_path();
    if (link_.stage.open()) {
      // If the tick comes this much too late, our own loop stood still, and messages of the peer
      // may be waiting unprocessed.
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
    // Plans the next tick. An open connection says when it needs one; before and during set-up, the
    // interval is fixed.
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
