// The open connection: bytes in and out. Set-up is in connection_setup.cc, the end in
// connection_close.cc.

#include "conn/rdma/connection.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>

#include "conn/rdma/listener.h"

namespace conn::rdma {
namespace {

ae::TimePoint clock_now() { return std::chrono::steady_clock::now(); }

// Work requests in one chain, and of these the slots kept free for control messages.
constexpr std::size_t kChain = 16;
constexpr std::uint32_t kControlSlots = 3;

}  // namespace

RdmaConnection::RdmaConnection(const ConnectionType& type, LoopState& state,
                               const Settings& defaults)
    : QueuedConnection(type, state.loop(), state.ready()),
      state_(&state),
      settings_(defaults),
      role_(Role::kClient),
      stream_(defaults.stream(Role::kClient), clock_now()) {}

RdmaConnection::RdmaConnection(const ConnectionType& type, LoopState& state,
                               const Settings& settings, CmId id, ListenerCore& listener)
    : QueuedConnection(type, state.loop(), state.ready()),
      state_(&state),
      settings_(settings),
      role_(Role::kServer),
      listener_(&listener),
      id_(std::move(id)),
      stream_(settings.stream(Role::kServer), clock_now()) {
  id_->context = static_cast<CmUser*>(this);
}

RdmaConnection::~RdmaConnection() {
  clear_deadline();
  tear_down();
}

// --- reading -----------------------------------------------------------------------------------------

bool RdmaConnection::readable() const {
  return stream_.has_unread() || stream_.at_end() || pending_failure_;
}

ssize_t RdmaConnection::do_read(void* buffer, std::size_t size) {
  if (read_turn_ != state_->turn()) {
    read_turn_ = state_->turn();
    read_left_ = settings_.read_budget;
  }
  const std::size_t n =
      stream_.read(static_cast<std::byte*>(buffer), std::min(size, read_left_), clock_now());
  if (n != 0) {
    read_left_ -= n;
    after_input();  // a window may have to be offered
    return static_cast<ssize_t>(n);
  }
  if (!stream_.has_unread()) {
    if (pending_failure_) {
      const int err = pending_failure_.code.value();
      fail(std::exchange(pending_failure_, {}));
      errno = err;
      return -1;
    }
    if (stream_.at_end()) {
      move_to(State::kClosed);
      return 0;
    }
  }
  errno = EAGAIN;
  return -1;
}

// --- writing -----------------------------------------------------------------------------------------

std::size_t RdmaConnection::room() const noexcept {
  return settings_.send_buffer - std::min<std::size_t>(tx_.held(), settings_.send_buffer);
}

bool RdmaConnection::writable() const {
  // A quarter of the buffer at least, so that a waiting writer does not trickle; when writing has
  // become impossible, the handler is to find that out.
  return phase_ != Phase::kOpen || room() >= std::max(1u, settings_.send_buffer / 4);
}

ssize_t RdmaConnection::do_writev(const iovec* vectors, int count) {
  if (phase_ != Phase::kOpen || pending_failure_) {
    errno = EPIPE;
    return -1;
  }
  std::size_t left = room();
  std::size_t done = 0;
  for (int i = 0; i < count && left != 0; ++i) {
    const std::size_t wanted = std::min(vectors[i].iov_len, left);
    const std::size_t taken =
        tx_.append(static_cast<const std::byte*>(vectors[i].iov_base), wanted);
    done += taken;
    left -= taken;
    if (taken < wanted) {
      if (done != 0) break;
      end_with(errno_failure(ENOMEM, "no memory the device could send from"));
      errno = ENOMEM;
      return -1;
    }
  }
  if (done == 0) {
    errno = EAGAIN;
    return -1;
  }
  state_->want_flush(*this);
  return static_cast<ssize_t>(done);
}

int RdmaConnection::do_shutdown() {
  errno = EOPNOTSUPP;  // the protocol has no half-close
  return -1;
}

void RdmaConnection::wait_for(ae::Mask direction, ae::TimePoint deadline) {
  read_left_ = settings_.read_budget;
  read_turn_ = state_->turn();
  state_->pump(
      [&] {
        if (state() != State::kConnected) return true;
        return direction == ae::kReadable ? readable() : writable();
      },
      deadline);
}

// --- what completed ------------------------------------------------------------------------------------

void RdmaConnection::on_sends_done(std::uint32_t sequence) {
  std::size_t bytes = 0;
  const auto mask = static_cast<std::uint32_t>(ring_.size() - 1);
  while (done_ != sequence) bytes += std::exchange(ring_[++done_ & mask].bytes, 0u);
  if (bytes != 0) tx_.on_completed(bytes);
  if (phase_ != Phase::kOpen && phase_ != Phase::kClosing) return;
  state_->want_flush(*this);  // what waited for a slot
  if (phase_ == Phase::kClosing) return continue_close();
  update_ready();
}

void RdmaConnection::on_immediate(std::uint32_t length) {
  on_communication_established();
  stream_.on_data(length, state_->loop().now());
  after_input();
}

void RdmaConnection::on_message(std::span<const std::byte> bytes) {
  on_communication_established();
  ++state_->statistics().control_received;
  stream_.on_control(bytes, state_->loop().now());
  if (role_ == Role::kServer && phase_ == Phase::kOpen && stream_.has_peer_window())
    clear_deadline();
  after_input();
}

// After anything the stream was told.
void RdmaConnection::after_input() {
  if (phase_ == Phase::kDisconnecting || phase_ == Phase::kDead) return update_ready();
  if (const char* why = stream_.failure(); why != nullptr) {
    ++state_->statistics().protocol_errors;
    return end_with({std::make_error_code(std::errc::protocol_error), why});
  }
  manage_windows();
  if (phase_ != Phase::kOpen && phase_ != Phase::kClosing) return;
  if (tx_.staged() != 0 || stream_.next_control(state_->loop().now())) state_->want_flush(*this);
  update_ready();
}

void RdmaConnection::manage_windows() {
  while (const WindowBuffer old = stream_.take_discarded()) free_window(old.owner);
  if (domain_ == nullptr) return;
  if (const std::uint32_t length = stream_.wanted_window(); length != 0) {
    try {
      windows_.push_back(domain_->make_window(length));
      ++state_->statistics().windows;
      stream_.provide_window(windows_.back()->buffer());
    } catch (const std::exception&) {
      stream_.no_window();
      if (const char* why = stream_.failure(); why != nullptr)
        end_with({std::make_error_code(std::errc::not_enough_memory), why});
    }
  }
}

void RdmaConnection::free_window(void* owner) noexcept {
  std::erase_if(windows_, [&](const auto& window) { return window.get() == owner; });
}

// --- posting -------------------------------------------------------------------------------------------

void RdmaConnection::post_due() {
  if (phase_ != Phase::kOpen && phase_ != Phase::kClosing) return;
  while (post_chain()) {
  }
  if (phase_ == Phase::kOpen && timer_ == 0) {
    if (const auto at = stream_.retry_at(tx_.staged()))
      set_deadline(*at - clock_now(), &RdmaConnection::pace_expired);
  }
}

// One chain of work requests with one doorbell: keys to bind, control messages, then the bytes the
// peer's window takes. True if another chain may follow.
bool RdmaConnection::post_chain() {
  const ae::TimePoint now = state_->loop().now();
  const auto depth = static_cast<std::uint32_t>(settings_.send_queue);
  const auto mask = static_cast<std::uint32_t>(ring_.size() - 1);
  const std::uint32_t free = depth - (posted_ - done_);
  std::array<ibv_send_wr, kChain> requests;
  std::array<ibv_sge, kChain> pieces;
  std::array<ControlBytes, kChain> messages;
  std::array<std::uint32_t, kChain> bytes{};
  std::size_t count = 0;
  bool signal_last = phase_ == Phase::kClosing;
  bool has_control = false;
  const auto full = [&] { return count == kChain || count >= free; };
  const auto add = [&](ibv_wr_opcode opcode) -> ibv_send_wr& {
    ibv_send_wr& request = requests[count];
    request = {};
    request.opcode = opcode;
    request.wr_id = posted_ + static_cast<std::uint32_t>(count) + 1;
    if (count != 0) requests[count - 1].next = &request;
    ++count;
    return request;
  };

  for (const auto& window : windows_) {
    if (!window->window || window->bound || full()) continue;
    ibv_send_wr& request = add(IBV_WR_BIND_MW);
    request.bind_mw.mw = window->window.get();
    request.bind_mw.rkey = ibv_inc_rkey(window->window->rkey);
    request.bind_mw.bind_info.mr = window->memory.mr.get();
    request.bind_mw.bind_info.addr = reinterpret_cast<std::uintptr_t>(window->memory.memory.data());
    request.bind_mw.bind_info.length = window->length;
    request.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
  }
  const std::size_t binds = count;

  // The copy is taken only for control messages, which are rare; data is committed after the post.
  Stream before = stream_;
  while (!full()) {
    const std::optional<ControlMessage> message = stream_.next_control(now);
    if (!message) break;
    const bool in_line = inline_limit_ >= kControlSize;
    messages[count] = encode(*message);
    pieces[count] = {reinterpret_cast<std::uintptr_t>(messages[count].data()), kControlSize, 0};
    if (!in_line) {
      const std::uint32_t slot = (posted_ + static_cast<std::uint32_t>(count) + 1) & mask;
      std::byte* at = control_->data + slot * kControlSize;
      std::copy(messages[count].begin(), messages[count].end(), at);
      pieces[count] = {reinterpret_cast<std::uintptr_t>(at), kControlSize, control_->lkey};
    }
    ibv_send_wr& request = add(IBV_WR_SEND);
    request.sg_list = &pieces[count - 1];
    request.num_sge = 1;
    if (in_line) request.send_flags = IBV_SEND_INLINE;
    if (message->opcode == Opcode::kKeepalive) signal_last = true;
    stream_.on_control_posted(*message, now);
    has_control = true;
  }
  const std::size_t controls_end = count;

  std::array<TxQueue::Segment, kChain> segments;
  std::size_t total = 0;
  if (const std::uint32_t n = stream_.sendable(tx_.staged(), now);
      n != 0 && free > count + kControlSlots) {
    const std::size_t most = std::min<std::size_t>(kChain - count, free - count - kControlSlots);
    const std::size_t cuts = tx_.segments(n, segments.data(), most);
    for (std::size_t i = 0; i < cuts; ++i) {
      ibv_send_wr& request =
          add(i + 1 == cuts ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE);
      pieces[count - 1] = {reinterpret_cast<std::uintptr_t>(segments[i].data), segments[i].length,
                           segments[i].lkey};
      request.sg_list = &pieces[count - 1];
      request.num_sge = 1;
      request.wr.rdma.remote_addr = stream_.remote_address() + total;
      request.wr.rdma.rkey = stream_.remote_key();
      if (segments[i].length <= inline_limit_) request.send_flags = IBV_SEND_INLINE;
      bytes[count - 1] = segments[i].length;
      total += segments[i].length;
      if (i + 1 == cuts) request.imm_data = htonl(static_cast<std::uint32_t>(total));
    }
  }

  const std::size_t data_end = count;

  // A write of no bytes takes no receive and needs no key: it proves the path, and that everything
  // before it was delivered.
  const bool prove_delivery = phase_ == Phase::kClosing && count == 0 && tx_.staged() == 0 &&
                              posted_ != done_ && last_signaled_ != posted_;
  if ((stream_.wants_silent_probe() || prove_delivery) && !full()) {
    ibv_send_wr& request = add(IBV_WR_RDMA_WRITE);
    request.wr.rdma.remote_addr = stream_.remote_address();
    request.wr.rdma.rkey = stream_.remote_key();
    signal_last = true;
    stream_.on_silent_probe_posted();
  }
  if (count == 0) return false;

  // Signal one in many, but always enough to learn when slots and staging memory come back.
  const std::size_t held = tx_.held();
  if (held > settings_.send_buffer / 2 || tx_.staged() > total) signal_last = true;
  std::uint32_t signaled = last_signaled_;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t sequence = posted_ + static_cast<std::uint32_t>(i) + 1;
    const bool last = i + 1 == count;
    if (sequence - signaled < depth / 2 && !(last && signal_last)) continue;
    requests[i].send_flags |= IBV_SEND_SIGNALED;
    signaled = sequence;
  }

  ibv_send_wr* bad = nullptr;
  const int err = ibv_post_send(qp_.get(), requests.data(), &bad);
  const std::size_t posted =
      err == 0 ? count : static_cast<std::size_t>(bad - requests.data());
  ++state_->statistics().doorbells;
  state_->statistics().work_requests += posted;
  if (err != 0 && err != ENOMEM) {
    end_with(errno_failure(err, "posting to the send queue"));
    return false;
  }
  if (posted < count) {
    // The device's queue is fuller than our count says: take back what did not go.
    if (has_control) {
      stream_ = before;
      for (std::size_t i = binds; i < std::min(posted, controls_end); ++i)
        if (const auto message = stream_.next_control(now)) stream_.on_control_posted(*message, now);
    }
    if (posted < data_end) total = 0;
  }
  for (std::size_t i = 0, left = std::min(binds, posted); i < windows_.size() && left != 0; ++i)
    if (windows_[i]->window && !windows_[i]->bound) {
      windows_[i]->bound = true;
      --left;
    }
  state_->statistics().control_sent += std::min(posted, controls_end) - std::min(posted, binds);

  if (total != 0) {
    const bool was_idle = tx_.in_flight() == 0;
    stream_.on_write_posted(static_cast<std::uint32_t>(total), now);
    tx_.on_posted(total);
    // Copied into the work request, so the staging memory is free already; only in order, though.
    if (was_idle && total <= inline_limit_ && controls_end + 1 == data_end) {
      tx_.on_completed(total);
      bytes[controls_end] = 0;
    }
  }
  for (std::size_t i = 0; i < posted; ++i) {
    ring_[++posted_ & mask].bytes = total != 0 ? bytes[i] : 0;
    if ((requests[i].send_flags & IBV_SEND_SIGNALED) != 0) last_signaled_ = posted_;
  }
  return err == 0 && count == kChain;
}

// --- facts ---------------------------------------------------------------------------------------------

std::optional<bool> RdmaConnection::is_local() const {
  if (peer_.size == 0) return std::nullopt;
  return local_.same_host(peer_);
}

std::vector<std::pair<std::string, std::string>> RdmaConnection::info() const {
  const auto text = [](auto value) { return fmt::format("{}", value); };
  return {{"phase", to_string(phase_)},
          {"device", context_ ? context_->name() : ""},
          {"peer-is-aeconn", stream_.peer_is_aeconn() ? "yes" : "no"},
          {"window", text(stream_.window_length())},
          {"peer-window", text(stream_.peer_window_length())},
          {"peer-window-left", text(stream_.peer_window_left())},
          {"pinned", text(stream_.pinned_bytes())},
          {"unread", text(stream_.unread_bytes())},
          {"unsent", text(tx_.staged())},
          {"unconfirmed", text(tx_.in_flight())},
          {"unproven-messages", text(stream_.unproven_messages())},
          {"send-queue", text(posted_ - done_)}};
}

}  // namespace conn::rdma
