// SPDX-License-Identifier: BSD-3-Clause
// The established connection: reading, writing and posting to the queue pair. Set-up is in
// carrier_setup.cc, the end in carrier_close.cc.

#include "conn/rdma/carrier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "conn/kit/probes.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

ae::TimePoint clock_now() { return std::chrono::steady_clock::now(); }

// Delay before posting again when the device's send queue is fuller than our count says.
constexpr ae::Duration kFullQueueRetry = std::chrono::milliseconds(1);

}  // namespace

RdmaCarrier::RdmaCarrier(const ConnectionType& type, LoopState& state, const Settings& defaults)
    : QueuedCarrier(type, state.ready()),
      state_(&state),
      settings_(defaults),
      role_(Role::kClient),
      stream_(defaults.stream(Role::kClient, 0), clock_now()) {
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
      stream_(settings.stream(Role::kServer, 0), clock_now()) {
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

bool RdmaCarrier::writable() const {
  // If writing is no longer possible, the handler must run to find out. Before the peer's first
  // window nothing can be sent: a list of schemes then tries the next one (conn/lists/dial.h).
  return phase_ != Phase::kOpen || (stream_.has_peer_window() && sender_.has_room());
}

ssize_t RdmaCarrier::writev(const iovec* vectors, int count) {
  if (phase_ != Phase::kOpen || pending_failure_) return refuse_write();
  if (inherited()) {
    errno = EAGAIN;
    return -1;
  }
  const std::size_t done = sender_.append(vectors, count, settings_.limit(), state_->now());
  if (done == 0) {
    if (sender_.wants_memory()) wait_for_memory(1);
    errno = EAGAIN;
    return -1;
  }
  state_->statistics().bytes_copied_out += done;
  state_->want_flush(*this);
  return static_cast<ssize_t>(done);
}

/// No memory to send `size` bytes from is available; on_memory() is called when there may be some.
void RdmaCarrier::wait_for_memory(std::size_t size) {
  sender_.starve(size, state_->now());
  state_->wait_for_memory(*this);
  if (sender_.requests_in_flight() != 0)
    state_->want_flush(*this);  // completions may give its own memory back
}

/// Memory may have come back; false: there is none yet.
bool RdmaCarrier::secure_memory() noexcept {
  return sender_.secure(phase_ == Phase::kOpen && host().wants_write(), settings_.limit());
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

void RdmaCarrier::on_memory_back() noexcept {
  tell_references({});
  if (sender_.starved() && secure_memory()) update_ready();
  state_->memory_came_back();
}

void RdmaCarrier::on_sends_done(std::uint32_t sequence) {
  if (sender_.retire(sequence, state_->now(), settings_.limit())) on_memory_back();
  stream_.on_confirmed(state_->now());
  on_keys_changed(sender_.done());
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
  if (sender_.queue().staged() != 0)
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
    return end_with({windows_.failure().code, fmt::format("{}: {}", why, windows_.failure().text)});
  if (phase_ != Phase::kOpen && phase_ != Phase::kClosing) return;
  if (sender_.queue().staged() != 0 || stream_.next_control(state_->now()))
    state_->want_flush(*this);
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
  sender_.on_idle(state_->now());
  // A key change that must be posted alone blocks everything else, and its completion calls this
  // again: no timer is needed.
  pace_at_ = keys_go_alone() && windows_.has_key_to_change()
                 ? std::nullopt
                 : stream_.retry_at(sender_.queue().staged());
  if (sender_.was_refused()) pace_at_ = clock_now() + kFullQueueRetry;
  if (!pace_at_ || pace_timer_ != 0) return;
  state_->keep_pace_of(*this);
  pace_timer_ = state_->loop().add_time_event(*pace_at_, [this] {
    pace_timer_ = 0;
    state_->want_flush(*this);
    return ae::kNoMore;
  });
}

// True if another chain may follow.
bool RdmaCarrier::post_chain() {
  using How = Sender::Posted::How;
  const bool prove = phase_ == Phase::kClosing || delivering_;
  const Sender::Posted posted =
      sender_.post(qp_.get(), windows_, keys_go_alone(), prove, state_->now());
  if (posted.how == How::kNothing) return false;
  LoopStatistics& statistics = state_->statistics();
  ++statistics.doorbells;
  statistics.work_requests += posted.requests;
  statistics.control_sent += posted.control;
  AECONN_PROBE(post, host().id(), posted.bytes, posted.requests);
  tell_references({});
  if (posted.asks && due() > sender_.ask_at()) state_->look_at(*this, sender_.ask_at());
  switch (posted.how) {
    case How::kNothing:
    case How::kDone:
      return false;
    case How::kMore:
      return true;
    case How::kKeyRefused:
      return on_key_refused(*posted.window);
    case How::kFailed:
      break;
  }
  // The driver does not say which request failed: it may have been a key change.
  Device& device = context_->device();
  if (posted.maybe_key && device.binding() == Device::Binding::kUnsure) device.give_up_binding();
  end_with(errno_failure(posted.error, "posting to the send queue"));
  return false;
}

bool RdmaCarrier::keys_go_alone() const noexcept {
  return context_ && context_->device().binds_alone();
}

// --- without the loop ----------------------------------------------------------------------------

bool RdmaCarrier::has_undelivered() const noexcept {
  if (phase_ != Phase::kOpen && phase_ != Phase::kClosing) return false;
  if (stream_.aborted())
    return sender_.requests_in_flight() != 0 || stream_.next_control(state_->now());
  return sender_.queue().staged() != 0 || sender_.data_under_way();
}

bool RdmaCarrier::flush(ae::TimePoint until) noexcept {
  const auto handed_on = [this] { return phase_ != Phase::kOpen || sender_.queue().staged() == 0; };
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
  if (phase_ == Phase::kOpen && sender_.wrote()) {
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
      {"inline", text(sender_.inline_limit())},
      {"receives", receives_ != nullptr ? text(receives_->depth()) : "shared"},
      {"peer-is-aeconn", stream_.peer_is_aeconn() ? "yes" : "no"},
      {"window", text(stream_.window_length())},
      {"windows", text(stream_.windows_wanted())},
      {"peer-window", text(stream_.peer_window_length())},
      {"peer-window-left", text(stream_.peer_window_left())},
      {"pinned", text(stream_.pinned_bytes())},
      {"unread", text(stream_.unread_bytes())},
      {"unsent", text(sender_.queue().staged())},
      {"unconfirmed", text(sender_.queue().in_flight())},
      {"unproven-messages", text(stream_.unproven_messages())},
      {"send-buffer", text(sender_.buffer_size())},
      {"send-queue", text(sender_.requests_in_flight())}};
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
