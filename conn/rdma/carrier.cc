// SPDX-License-Identifier: BSD-3-Clause
// The established connection: reading, writing and posting to the queue pair. Set-up is in
// carrier_setup.cc, the end in carrier_close.cc.

#include "conn/rdma/carrier.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>

#include "conn/kit/probes.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

ae::TimePoint clock_now() { return std::chrono::steady_clock::now(); }

// Bounds of a batch, which is otherwise a quarter of the send buffer: while one batch is in flight
// there is space to write the next, and the peer reads the previous one.
constexpr std::uint32_t kShortBatch = 64 * 1024, kLongBatch = 256 * 1024;
// Delay before posting again when the device's send queue is fuller than our count says.
constexpr ae::Duration kFullQueueRetry = std::chrono::milliseconds(1);

}  // namespace

RdmaCarrier::RdmaCarrier(const ConnectionType& type, LoopState& state, const Settings& defaults)
    : QueuedCarrier(type, state.ready()),
      state_(&state),
      settings_(defaults),
      role_(Role::kClient),
      stream_(defaults.stream(Role::kClient, 0), clock_now()),
      send_buffer_(defaults.send_buffer, defaults.max_send_buffer) {
  state.make_room(type.counters(state.loop()).open + 1);
}

RdmaCarrier::RdmaCarrier(const ConnectionType& type, LoopState& state, const Settings& settings,
                         CmId id, AcceptOwner& listener)
    : QueuedCarrier(type, state.ready()),
      state_(&state),
      settings_(settings),
      role_(Role::kServer),
      listener_(&listener),
      id_(std::move(id)),
      stream_(settings.stream(Role::kServer, 0), clock_now()),
      send_buffer_(settings.send_buffer, settings.max_send_buffer) {
  state.make_room(type.counters(state.loop()).open + 1);
  id_->context = static_cast<CmUser*>(this);
}

RdmaCarrier::~RdmaCarrier() {
  drop_kept();
  clear_deadline();
  tear_down();
}

// --- reading -------------------------------------------------------------------------------------

bool RdmaCarrier::readable() const {
  if (stream_.at_end() || pending_failure_) return true;
  if (!stream_.has_unread()) return false;
  return together_ == 1 || stream_.unread_bytes() >= together_ || stream_.is_full() ||
         stream_.peer_closed();
}

// The read budget of this iteration may already be used up, by the write handler or a handler of
// another connection.
bool RdmaCarrier::ready_to_read() {
  return read_left_ != 0 || read_turn_ != state_->turn() || !stream_.has_unread();
}

void RdmaCarrier::renew_budget() noexcept {
  if (read_turn_ == state_->turn()) return;
  read_turn_ = state_->turn();
  read_left_ = settings_.read_budget;
}

/// 1 if there are bytes that may be read in this iteration, else the result of read().
ssize_t RdmaCarrier::look_for_bytes() {
  end_view();
  renew_budget();
  if (inherited()) {  // a child of fork() may not even have the pages
    errno = EAGAIN;
    return -1;
  }
  if (stream_.has_unread()) {
    if (read_left_ != 0) return 1;
  } else if (pending_failure_) {
    const int err = pending_failure_.code.value();
    fail(std::exchange(pending_failure_, {}));
    errno = err;
    return -1;
  } else if (stream_.at_end()) {
    move_to(State::kClosed);
    return 0;
  }
  errno = EAGAIN;
  return -1;
}

/// `into` may be null: the bytes are then consumed without a copy.
std::size_t RdmaCarrier::take_bytes(std::byte* into, std::size_t size) {
  const std::uint32_t turns = stream_.window_turns();
  const std::size_t n = stream_.read(into, size, state_->now());
  read_left_ -= std::min(n, read_left_);
  shown_ -= std::min(n, shown_);
  if (stream_.window_turns() != turns) after_input();  // a window may have to be offered
  return n;
}

ssize_t RdmaCarrier::read(void* buffer, std::size_t size) {
  if (const ssize_t n = look_for_bytes(); n <= 0) return n;
  const std::size_t n = take_bytes(static_cast<std::byte*>(buffer), std::min(size, read_left_));
  state_->statistics().bytes_copied_in += n;
  return static_cast<ssize_t>(n);
}

// --- writing -------------------------------------------------------------------------------------

std::size_t RdmaCarrier::room() const noexcept {
  return send_buffer_.size() - std::min<std::size_t>(tx_.buffered(), send_buffer_.size());
}

/// At least a quarter of the buffer, so that a waiting writer does not send tiny pieces.
std::size_t RdmaCarrier::room_to_wait_for() const noexcept {
  return std::max(1u, send_buffer_.size() / 4);
}

bool RdmaCarrier::writable() const {
  // If writing is no longer possible, the handler must run to find out. Before the peer's first
  // window nothing can be sent: a list of schemes then tries the next one (conn/lists/dial.h).
  return phase_ != Phase::kOpen ||
         (!starved_ && stream_.has_peer_window() && room() >= room_to_wait_for());
}

ssize_t RdmaCarrier::writev(const iovec* vectors, int count) {
  if (phase_ != Phase::kOpen || pending_failure_) return refuse_write();
  if (inherited()) {
    errno = EAGAIN;
    return -1;
  }
  if (tx_.held() == 0) send_buffer_.on_idle_write(state_->now());
  std::size_t left = room();
  std::size_t done = 0;
  wants_memory_ = false;
  short_of_room_ = left == 0;
  for (int i = 0; i < count && left != 0; ++i) {
    const std::size_t wanted = std::min(vectors[i].iov_len, left);
    short_of_room_ = wanted < vectors[i].iov_len || (wanted == left && i + 1 < count);
    const std::size_t taken =
        tx_.append(static_cast<const std::byte*>(vectors[i].iov_base), wanted, settings_.limit());
    done += taken;
    left -= taken;
    wants_memory_ = taken < wanted;
    if (wants_memory_) break;
  }
  if (done == 0) {
    if (wants_memory_) wait_for_memory(1);
    errno = EAGAIN;
    return -1;
  }
  state_->statistics().bytes_copied_out += done;
  state_->want_flush(*this);
  return static_cast<ssize_t>(done);
}

/// No memory to send `size` bytes from is available; on_memory() is called when there may be some.
void RdmaCarrier::wait_for_memory(std::size_t size) {
  starved_ = true;
  starved_for_ = static_cast<std::uint32_t>(size);
  send_buffer_.on_refusal(state_->now());
  state_->wait_for_memory(*this);
  if (posted_ != done_) state_->want_flush(*this);  // completions may give its own memory back
}

/// Memory may have come back. For a waiting write handler it is allocated here, so that the handler
/// never runs in vain; false: there is none yet. With nothing in flight one byte suffices: a
/// reservation then uses a chunk lent by the base and is written through that memory in parts
/// (reserve()).
bool RdmaCarrier::secure_memory() noexcept {
  const bool waits = starved_ && phase_ == Phase::kOpen && host().wants_write() && !tx_.reserving();
  const std::size_t least = tx_.held() == 0 ? 1 : starved_for_;
  if (waits && !tx_.secure(least, settings_.limit())) return false;
  starved_ = false;
  return true;
}

void RdmaCarrier::on_memory() noexcept {
  if (secure_memory()) return update_ready();
  state_->wait_for_memory(*this);
}

// Writing has ended. Unread bytes can still be read, so the connection fails only if there are
// none.
ssize_t RdmaCarrier::refuse_write() {
  if (!stream_.has_unread()) {
    if (pending_failure_)
      fail(std::exchange(pending_failure_, {}));
    else
      fail(errno_failure(EPIPE,
                         fmt::format("rdma {}: write after the peer closed", peer_.to_string())));
  }
  errno = EPIPE;
  return -1;
}

int RdmaCarrier::shutdown() {
  errno = EOPNOTSUPP;  // the protocol has no half-close
  return -1;
}

bool RdmaCarrier::wait_for(ae::Mask direction, ae::TimePoint deadline) {
  read_left_ = settings_.read_budget;
  read_turn_ = state_->turn();
  const auto ready = [&] {
    if (state() != State::kConnected) return true;
    return direction == ae::kReadable ? readable() : writable();
  };
  state_->pump(ready, deadline);
  return ready();
}

// --- what completed ------------------------------------------------------------------------------

ReceiveQueue* RdmaCarrier::receives() noexcept {
  if (receives_ != nullptr) return receives_.get();
  return domain_ != nullptr ? domain_->shared_receives() : nullptr;
}

void RdmaCarrier::retire_sends(std::uint32_t sequence) noexcept {
  if (sequence - done_ > posted_ - done_) return;  // not the number of a pending request
  if (sends_failed_) {
    done_ = sequence;
    return look_at_last_data();
  }
  std::size_t bytes = 0;
  std::uint32_t messages = 0;
  const auto mask = static_cast<std::uint32_t>(ring_.size() - 1);
  while (done_ != sequence) {
    const Sent sent = std::exchange(ring_[++done_ & mask], Sent{});
    bytes += sent.bytes;
    messages += sent.message ? 1 : 0;
  }
  stream_.on_messages_done(messages);
  look_at_last_data();
  if (bytes == 0) return;
  send_buffer_.on_confirmed(bytes, state_->now(), settings_.limit());
  tx_.on_completed(bytes);
  tell_references({});
  if (starved_ && secure_memory()) update_ready();
  state_->memory_came_back();
}

// The requests before the first failed one were carried out. The data of the others stays in tx_
// until the queue pair is destroyed, and is then reported to the user with an error.
void RdmaCarrier::retire_failed(std::uint32_t sequence) noexcept {
  if (sequence - done_ - 1 >= posted_ - done_) return;  // not the number of a pending request
  if (!sends_failed_) retire_sends(sequence - 1);
  sends_failed_ = true;
  done_ = sequence;
  look_at_last_data();
}

void RdmaCarrier::on_sends_done(std::uint32_t sequence) {
  retire_sends(sequence);
  stream_.on_confirmed(state_->now());
  on_keys_changed(done_);
  if (phase_ != Phase::kOpen && phase_ != Phase::kClosing) return;
  state_->want_flush(*this);  // work that waited for a free slot
  if (phase_ == Phase::kClosing) return continue_close();
  update_ready();
}

void RdmaCarrier::on_immediate(std::uint32_t length) {
  on_communication_established();
  on_first_message();
  const std::uint32_t turns = stream_.window_turns();
  stream_.on_data(length, state_->now());
  if (stream_.window_turns() != turns || stream_.failure() != nullptr || phase_ != Phase::kOpen)
    return after_input();
  if (tx_.staged() != 0)
    state_->want_flush(*this);  // data may have waited for this proof of receives
  update_ready();
}

// iWARP: from now on the accepting side may send.
void RdmaCarrier::on_first_message() noexcept {
  if (std::exchange(waits_for_first_message_, false)) state_->want_flush(*this);
}

void RdmaCarrier::on_message(std::span<const std::byte> bytes) {
  on_communication_established();
  on_first_message();
  ++state_->statistics().control_received;
  stream_.on_control(bytes, state_->now());
  if (phase_ == Phase::kOpen && stream_.has_peer_window()) clear_deadline();
  after_input();
}

// Call after every input to the stream.
void RdmaCarrier::after_input() {
  if (phase_ == Phase::kDisconnecting || phase_ == Phase::kDead) return update_ready();
  if (const char* why = stream_.failure(); why != nullptr) {
    ++state_->statistics().protocol_errors;
    if (stream_.excess() == Excess::kMessages) ++state_->statistics().control_floods;
    if (stream_.excess() == Excess::kWindow) ++state_->statistics().peer_windows_refused;
    stop_queue_pair();  // stop the offender at once, even if its disconnect must wait
    return end_with({std::make_error_code(std::errc::protocol_error), why}, Unread::kDrop);
  }
  if (stream_.peer_aborted())
    return end_with(
        {std::make_error_code(std::errc::connection_reset), "the peer aborted the connection"});
  manage_windows();
  if (const char* why = stream_.failure(); why != nullptr)
    return end_with({window_failure_.code, fmt::format("{}: {}", why, window_failure_.text)});
  if (phase_ != Phase::kOpen && phase_ != Phase::kClosing) return;
  if (tx_.staged() != 0 || stream_.next_control(state_->now())) state_->want_flush(*this);
  update_ready();
}

// --- posting -------------------------------------------------------------------------------------

void RdmaCarrier::post_due() noexcept {
  if (inherited()) return;
  take([this] { post_chains(); });
}

void RdmaCarrier::post_chains() {
  if ((phase_ != Phase::kOpen && phase_ != Phase::kClosing) || stream_over_) return;
  if (waits_for_first_message_) return;  // RFC 5044, 7.1
  while (post_chain()) {
  }
  if (tx_.staged() != 0) stream_.on_staged_left();
  if (std::exchange(short_of_room_, false) && tx_.staged() == 0)
    send_buffer_.on_full(state_->now());
  // A key change that must be posted alone blocks everything else, and its completion calls this
  // again: no timer is needed.
  pace_at_ = keys_go_alone() && has_key_to_change() ? std::nullopt : stream_.retry_at(tx_.staged());
  if (post_again_) pace_at_ = clock_now() + kFullQueueRetry;
  if (!pace_at_ || pace_timer_ != 0) return;
  state_->keep_pace_of(*this);
  pace_timer_ = state_->loop().add_time_event(*pace_at_, [this] {
    pace_timer_ = 0;
    state_->want_flush(*this);
    return ae::kNoMore;
  });
}

// Posts one chain of work requests with one doorbell: key changes, then control messages, then the
// bytes that fit the peer's window. True if another chain may follow.
bool RdmaCarrier::post_chain() {
  SendChain chain(settings_.send_queue - (posted_ - done_), posted_);
  ChainPlan plan;
  if (keys_go_alone() && has_key_to_change()) {
    plan_keys_alone(chain, plan);
  } else {
    plan_keys(chain, plan);
    plan_control(chain, plan);
    plan_data(chain, plan);
    plan_probe(chain, plan);
  }
  if (chain.size() == 0) return false;
  const std::uint32_t last_signaled = plan_signals(chain, plan);
  const SendChain::Result result = chain.post(qp_.get());
  post_again_ = result.error == ENOMEM;
  ++state_->statistics().doorbells;
  state_->statistics().work_requests += result.posted;
  AECONN_PROBE(post, host().id(), plan.bytes, result.posted);
  const bool key_refused =
      result.error != 0 && result.error != ENOMEM && result.known && result.posted < plan.keys_end;
  if (result.error != 0 && (result.error != ENOMEM || !result.known) && !key_refused) {
    // The driver does not say which request failed: it may have been a key change.
    const bool unsure = context_->device().binding() == Device::Binding::kUnsure;
    if (!result.known && plan.keys_end != 0 && unsure) context_->device().give_up_binding();
    end_with(errno_failure(result.error, "posting to the send queue"));
    return false;
  }
  if (result.posted < plan.data_end) plan.bytes = 0;  // without its immediate it is not announced
  commit(plan, result.posted);
  // If some requests were not posted, their signals are missing too: count from the known state.
  last_signaled_ = result.posted == chain.size() ? last_signaled : last_signaled_;
  if (key_refused) return on_key_refused(*plan.window[result.posted]);
  ask_later();
  // A chain holds one batch; the peer may have another window.
  const bool more = plan.bytes != 0 && stream_.sendable(tx_.staged(), state_->now()) != 0;
  return result.error == 0 && (more || chain.size() == SendChain::kLimit);
}

// Requests a completion later: without keepalives nothing else would free the memory of the last
// sends.
void RdmaCarrier::ask_later() noexcept {
  constexpr ae::Duration kLater = std::chrono::seconds(5);
  if (last_signaled_ == posted_ || tx_.held() == 0) {
    ask_at_ = ae::TimePoint::max();
  } else if (ask_at_ == ae::TimePoint::max()) {
    ask_at_ = state_->now() + kLater;
    if (due() > ask_at_) state_->look_at(*this, ask_at_);
  }
}

bool RdmaCarrier::keys_go_alone() const noexcept {
  return context_ && context_->device().binds_alone();
}

void RdmaCarrier::plan_keys(SendChain& chain, ChainPlan& plan) {
  if (key_to_change_)
    for (ReceiveWindow& window : windows_)
      if (window.waits_for_key() && !chain.full()) {
        plan.window[chain.size()] = &window;
        chain.change_key(window);
      }
  plan.keys_end = plan.control_end = plan.data_end = chain.size();
  // Their completion frees a place for a window, and shows whether the key changes work.
  if (plan.keys_end != 0) plan.signal_last = true;
}

// Called before the connection is established, once the queue pair is ready to send: a device that
// refuses keys is detected before the next connection is made.
void RdmaCarrier::post_keys() {
  for (bool again = true; again && has_key_to_change();) {
    SendChain chain(settings_.send_queue, posted_);
    ChainPlan plan;
    plan_keys(chain, plan);
    if (chain.size() == 0) return;
    const std::uint32_t last_signaled = plan_signals(chain, plan);
    const SendChain::Result result = chain.post(qp_.get());
    commit(plan, result.posted);
    if (result.posted == chain.size()) last_signaled_ = last_signaled;
    if (result.error == 0) return;
    const bool unsure = context_->device().binding() == Device::Binding::kUnsure;
    again = result.known && unsure && go_on_without_binding();
    if (!result.known && unsure) context_->device().give_up_binding();
    if (!again) throw VerbsError(bind_failure(result.error));
  }
}

// Keys that must be alone in the send queue (Device::binds_alone()): earlier requests are confirmed
// first, by a write of zero bytes if nothing else requests a completion; later ones wait for them.
void RdmaCarrier::plan_keys_alone(SendChain& chain, ChainPlan& plan) {
  if (posted_ == done_) return plan_keys(chain, plan);
  const auto under_way = [](const ReceiveWindow& window) { return window.key_under_way(); };
  if (std::any_of(windows_.begin(), windows_.end(), under_way)) return;
  if (last_signaled_ == posted_ || chain.full()) return;
  chain.write_nothing(stream_.remote_address(), stream_.remote_key());
  plan.signal_last = true;
}

void RdmaCarrier::plan_control(SendChain& chain, ChainPlan& plan) {
  const ae::TimePoint now = state_->now();
  for (; !chain.full(); ++plan.control) {
    const std::optional<ControlMessage> message = stream_.next_control(now, plan.control);
    if (!message) break;
    const ControlBytes bytes = encode(*message);
    if (control_ == nullptr) {
      chain.send_inline(bytes);
    } else {
      const std::size_t slot = chain.next_sequence() & (ring_.size() - 1);
      std::byte* at = control_->data + slot * kControlSize;
      std::copy(bytes.begin(), bytes.end(), at);
      chain.send(at, RegisteredPool::lkey(*control_));
    }
    if (message->opcode == Opcode::kKeepalive) plan.signal_last = true;
  }
  plan.control_end = chain.size();
}

void RdmaCarrier::plan_data(SendChain& chain, ChainPlan& plan) {
  plan.data_end = chain.size();
  // Data sent in place uses no space in the send buffer, so the batch may be long; but not for
  // Valkey's client, which moves the rest of the received bytes for each reply that it takes out.
  const bool many_in_place = stream_.peer_is_aeconn() && tx_.referred() >= kLongBatch;
  const std::uint32_t batch =
      many_in_place ? kLongBatch : std::clamp(send_buffer_.size() / 4, kShortBatch, kLongBatch);
  std::uint32_t n = stream_.sendable(tx_.staged(), state_->now(), plan.control);
  if (n > batch + batch / 4) n = batch;  // a slightly longer batch saves a message
  if (n == 0 || chain.room() <= flow::kControlSlots) return;
  std::array<TxQueue::Segment, SendChain::kLimit * kMostPieces> segments;
  const std::size_t most = (chain.room() - flow::kControlSlots) * pieces_limit_;
  std::span<const TxQueue::Segment> left(segments.data(), tx_.segments(n, segments.data(), most));
  while (!left.empty()) {
    const auto together = left.first(std::min<std::size_t>(left.size(), pieces_limit_));
    left = left.subspan(together.size());
    std::uint32_t bytes = 0;
    for (const TxQueue::Segment& each : together) bytes += each.length;
    plan.copied = together.size() == 1 && bytes <= inline_limit_;
    chain.write(together, stream_.remote_address() + plan.bytes, stream_.remote_key(), plan.copied);
    plan.bytes_of[chain.size() - 1] = bytes;
    plan.bytes += bytes;
  }
  chain.with_immediate(stream_.immediate(plan.bytes));
  plan.data_end = chain.size();
}

// A write of zero bytes proves the path, and that everything before it was delivered.
void RdmaCarrier::plan_probe(SendChain& chain, ChainPlan& plan) {
  const bool prove = (phase_ == Phase::kClosing || delivering_) && tx_.staged() == 0;
  const bool waits_for_proof = stream_.beyond_proof(plan.control) && tx_.staged() != 0;
  const bool asks = wants_memory_ || state_->now() >= ask_at_;
  const bool nobody_asked = chain.size() == 0 && posted_ != done_ && last_signaled_ != posted_;
  if (stream_.wants_silent_probe() && posted_ != done_ && last_signaled_ == posted_)
    stream_.on_silent_probe_posted();  // a completion is already requested for what is in flight
  if (!stream_.wants_silent_probe() && !((prove || waits_for_proof || asks) && nobody_asked))
    return;
  if (chain.full()) return;
  // Any other request in the chain proves the same. (bnxt_re before rdma-core 50 gives a request
  // without pieces the length of the preceding one in its chain.)
  if (chain.size() == 0) chain.write_nothing(stream_.remote_address(), stream_.remote_key());
  plan.signal_last = true;
  plan.probe_end = chain.size();
}

// Requests a completion for one of many requests, but always often enough to learn when slots and
// staging memory become free. Returns the sequence number of the last request with one.
std::uint32_t RdmaCarrier::plan_signals(SendChain& chain, const ChainPlan& plan) {
  const bool signal_last = plan.signal_last || phase_ == Phase::kClosing || delivering_ ||
                           stream_.beyond_proof(plan.control) || wants_memory_ ||
                           tx_.referred() != 0 || tx_.held() > send_buffer_.size() / 2 ||
                           tx_.staged() > plan.bytes;
  std::uint32_t signaled = last_signaled_;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    const std::uint32_t sequence = posted_ + static_cast<std::uint32_t>(i) + 1;
    const bool last = i + 1 == chain.size();
    if (sequence - signaled < flow::signal_every(settings_.send_queue) && !(last && signal_last))
      continue;
    chain.signal(i);
    signaled = sequence;
  }
  return signaled;
}

void RdmaCarrier::commit(ChainPlan& plan, std::size_t posted) {
  if (plan.probe_end != 0 && posted >= plan.probe_end) stream_.on_silent_probe_posted();
  for (std::size_t i = 0; i < std::min(plan.keys_end, posted); ++i)
    plan.window[i]->posted(posted_ + static_cast<std::uint32_t>(i) + 1);
  const std::size_t control = std::min(posted, plan.control_end) - std::min(posted, plan.keys_end);
  stream_.on_controls_posted(control, state_->now());
  state_->statistics().control_sent += control;
  if (plan.bytes != 0) {
    const bool nothing_in_flight = tx_.in_flight() == 0;
    stream_.on_write_posted(plan.bytes, state_->now());
    tx_.on_posted(plan.bytes);
    // A single inline write is copied into its request: its staging memory is free at once if
    // nothing older is in flight, because memory is returned in order.
    const bool one_request = plan.data_end - plan.control_end == 1;
    if (nothing_in_flight && one_request && plan.copied) {
      tx_.on_completed(plan.bytes);
      tell_references({});
      plan.bytes_of[plan.control_end] = 0;
    }
  }
  const std::size_t mask = ring_.size() - 1;
  for (std::size_t i = 0; i < posted; ++i) {
    const bool is_control = i >= plan.keys_end && i < plan.control_end;
    const bool immediate = plan.bytes != 0 && i + 1 == plan.data_end;
    ring_[++posted_ & mask] = {plan.bytes != 0 ? plan.bytes_of[i] : 0, is_control || immediate};
    if (immediate) {
      last_data_ = posted_;
      data_under_way_ = wrote_ = true;
    }
  }
}

// --- without the loop ----------------------------------------------------------------------------

bool RdmaCarrier::has_undelivered() const noexcept {
  if (phase_ != Phase::kOpen && phase_ != Phase::kClosing) return false;
  if (stream_.aborted()) return posted_ != done_ || stream_.next_control(state_->now());
  return tx_.staged() != 0 || data_under_way_;
}

bool RdmaCarrier::flush(ae::TimePoint until) noexcept {
  const auto handed_on = [this] { return phase_ != Phase::kOpen || tx_.staged() == 0; };
  post_due();
  if (!handed_on() && until > clock_now()) {
    try {
      state_->pump(handed_on, until);
    } catch (const std::exception&) {  // no memory to wait with
    }
  }
  return handed_on();
}

// On iWARP a completion only means that the stream has taken the bytes; only the end of the stream
// shows that they arrived. So the stream is ended here, as in close().
bool RdmaCarrier::has_left() noexcept {
  if (has_undelivered()) return false;
  if (!context_ || !context_->device().iwarp()) return true;
  if (phase_ == Phase::kOpen && wrote_) {
    move_phase(Phase::kClosing);
    close_deadline_ = clock_now();
    state_->want_flush(*this);
  }
  continue_close();
  return phase_ != Phase::kClosing &&
         (phase_ != Phase::kDisconnecting || !clean_end_ || peer_gone_);
}

bool RdmaCarrier::drain(ae::TimePoint until) noexcept {
  if (has_undelivered()) {
    delivering_ = true;
    post_due();
  }
  if (!has_left() && until > clock_now()) {
    try {
      state_->pump([this] { return has_left(); }, until);
    } catch (const std::exception&) {  // no memory to wait with
    }
  }
  return has_left();
}

ae::Duration RdmaCarrier::end_linger() const noexcept {
  return std::min(settings_.linger, settings_.end_linger);
}

// --- facts ---------------------------------------------------------------------------------------

std::optional<bool> RdmaCarrier::is_local() const {
  if (peer_.size == 0) return std::nullopt;
  return local_.same_host(peer_);
}

const Route& RdmaCarrier::route() const noexcept {
  if (qp_ && id_ && !inherited()) read_back(qp_.get(), id_->port_num, route_);
  return route_;
}

std::string RdmaCarrier::path() const {
  const Route& way = route();
  std::string line = "rdma " + device_;
  if (way.global) line += fmt::format(" gid {}", way.gid_index);
  const std::string_view kind = iwarp_ ? "iWARP" : way.kind;
  if (!kind.empty()) line.append(" ").append(kind);
  line += fmt::format(" {} > {}", local_.to_string(), peer_.to_string());
  if (bytes_of(way.mtu) != 0) line += fmt::format(" mtu {}", bytes_of(way.mtu));
  if (way.global) line += fmt::format(" tc {}", way.traffic_class);
  // Not read back: on iWARP no call reports it.
  if (iwarp_ && settings_.fabric.traffic_class)
    line += fmt::format(" tc {}", *settings_.fabric.traffic_class);
  if (way.known) line += fmt::format(" sl {}", way.service_level);
  return line +
         fmt::format(" window {} peer {}", size_text(stream_.window_length()), stream_.peer_kind());
}

std::vector<std::pair<std::string, std::string>> RdmaCarrier::info() const {
  const auto text = [](auto value) { return fmt::format("{}", value); };
  std::vector<std::pair<std::string, std::string>> facts{
      {"phase", to_string(phase_)},
      {"device", context_ ? context_->name() : ""},
      {"isolation", !domain_               ? ""
                    : domain_->bind_keys() ? "window"
                    : domain_->shared()    ? "none"
                                           : "connection"},
      {"inline", text(inline_limit_)},
      {"receives", receives_ != nullptr ? text(receives_->depth()) : "shared"},
      {"peer-is-aeconn", stream_.peer_is_aeconn() ? "yes" : "no"},
      {"window", text(stream_.window_length())},
      {"windows", text(stream_.windows_wanted())},
      {"peer-window", text(stream_.peer_window_length())},
      {"peer-window-left", text(stream_.peer_window_left())},
      {"pinned", text(stream_.pinned_bytes())},
      {"unread", text(stream_.unread_bytes())},
      {"unsent", text(tx_.staged())},
      {"unconfirmed", text(tx_.in_flight())},
      {"unproven-messages", text(stream_.unproven_messages())},
      {"send-buffer", text(send_buffer_.size())},
      {"send-queue", text(posted_ - done_)}};
  const Route& way = route();
  if (way.global) {
    facts.emplace_back("gid-index", text(way.gid_index));
    facts.emplace_back("traffic-class", text(way.traffic_class));
  }
  if (way.kind[0] != '\0') facts.emplace_back("gid-type", way.kind);
  if (bytes_of(way.mtu) != 0) facts.emplace_back("mtu", text(bytes_of(way.mtu)));
  if (way.known) facts.emplace_back("service-level", text(way.service_level));
  if (std::string ece = way.known && qp_ && !inherited() ? ece_text(qp_.get()) : ""; !ece.empty())
    facts.emplace_back("ece", std::move(ece));
  return facts;
}

}}}  // namespace conn::rdma
