#include "conn/rdma/stream.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace conn::rdma {
namespace {

// Kept free of data messages, so that control messages always find a receive. At most a handful are
// unhandled at a time: the offer, one keepalive, one question, one answer for each of the peer's.
constexpr std::uint64_t kReserve = 32;
// Ask for proof when this many messages are unproven: early enough that a bulk sender never waits.
constexpr std::uint64_t kProbeAt = 256;
// How often a peer that cannot be asked may be sent one more message on trust. Our queue pair
// retries for ever, so a wrong guess costs a delay, not the connection.
constexpr ae::Duration kPace = std::chrono::milliseconds(10);
// A window that filled within this time was too small.
constexpr ae::Duration kFastFill = std::chrono::milliseconds(5);
// Keepalives may be sent more often, but the peer is not told to count on it: no loop is that
// punctual.
constexpr ae::Duration kShortestPromise = std::chrono::milliseconds(100);
// Our probes as a server carry this bit, so that answer and question cannot be mixed up.
constexpr std::uint16_t kServerProbe = 0x8000;
// What a data message adds to the peer's budget of control messages: a fast sender of small
// messages asks for proof, at most once in kProbeAt of them.
constexpr double kEarnedByData = 1.0 / 16;

}  // namespace

Stream::Stream(const StreamConfig& config, ae::TimePoint now)
    : config_(config),
      desired_(config.window),
      offered_at_(now),
      last_full_at_(now),
      tokens_(config.control_burst),
      tokens_at_(now),
      heard_at_(now),
      last_write_at_(now),
      keepalive_at_(now + config.keepalive) {
  assert(config.window != 0 && config.peer_receives >= 16);
}

void Stream::on_hello(const Hello& hello) { peer_hello_ = hello; }

Hello Stream::hello() const {
  Hello mine;
  mine.flags = Hello::kWindowMayChange | Hello::kAnswersProbes;
  if (config_.keepalive > ae::Duration::zero()) {
    mine.flags |= Hello::kSendsKeepalives;
    const ae::Duration promise = std::max(config_.keepalive, kShortestPromise);
    mine.keepalive_ms = static_cast<std::uint32_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(promise).count());
  }
  return mine;
}

void Stream::fail(const char* why, Excess excess) noexcept {
  if (failure_ != nullptr) return;
  failure_ = why;
  excess_ = excess;
}

// --- receive windows -----------------------------------------------------------------------------

bool Stream::window_may_change() const noexcept {
  if (peer_hello_) return (peer_hello_->flags & Hello::kWindowMayChange) != 0;
  return config_.role == Role::kServer;  // a Valkey server must see one length, a client not
}

std::size_t Stream::free_slot() const noexcept {
  for (std::size_t i = 0; i < windows_.size(); ++i)
    if (windows_[i].buffer.data == nullptr) return i;
  return kNone;
}

bool Stream::is_spare(std::size_t slot) const noexcept {
  const Window& window = windows_[slot];
  return window.buffer.data != nullptr && slot != offered_ && window.read == window.filled;
}

std::size_t Stream::spare_slot() const noexcept {
  for (std::size_t i = 0; i < windows_.size(); ++i)
    if (is_spare(i)) return i;
  return kNone;
}

std::uint32_t Stream::wanted_window() const noexcept {
  if (failure_ != nullptr || offered_ != kNone || window_failed_ || peer_closed_ || released_)
    return 0;
  // A spare one of another length, if there is one, waits in case that there is no memory.
  return free_slot() != kNone ? desired_ : 0;
}

void Stream::provide_window(const WindowBuffer& buffer) {
  const std::size_t slot = free_slot();
  assert(slot != kNone && buffer.data != nullptr && buffer.length == desired_);
  assert(offered_ == kNone && !released_);
  windows_[slot] = {buffer, 0, 0};
  offer(slot);
}

void Stream::no_window() {
  window_failed_ = true;
  if (windows_[0].buffer.data == nullptr && windows_[1].buffer.data == nullptr)
    return fail("no memory for a receive window");
  if (offered_ == kNone) offer_next();
}

WindowBuffer Stream::take_discarded() noexcept {
  const std::size_t slot = spare_slot();
  if (slot == kNone) return {};
  // Without an offer the last window that could be offered is kept until there is a better one.
  const bool replaceable = offered_ != kNone || (free_slot() == kNone && !window_failed_);
  const bool useless = drop_spare_ || windows_[slot].buffer.length != desired_;
  if (!replaceable || !useless) return {};
  drop_spare_ = false;
  return std::exchange(windows_[slot], Window{}).buffer;
}

WindowBuffer Stream::take_any() noexcept {
  released_ = true;
  register_due_ = false;
  offered_ = front_ = kNone;
  for (Window& window : windows_)
    if (window.buffer.data != nullptr) return std::exchange(window, Window{}).buffer;
  return {};
}

void Stream::offer_next() noexcept {
  assert(offered_ == kNone);
  if (released_) return;
  for (std::size_t i = 0; i < windows_.size(); ++i)
    if (is_spare(i) && windows_[i].buffer.length == desired_) return offer(i);
  // One of another length waits: wanted_window() asks for its successor.
  if (window_failed_ && spare_slot() != kNone) offer(spare_slot());
}

void Stream::offer(std::size_t slot) noexcept {
  assert(offered_ == kNone && !register_due_);
  if (peer_closed_ || failure_ != nullptr) return;
  windows_[slot].filled = windows_[slot].read = 0;
  offered_ = slot;
  if (front_ == kNone) front_ = slot;
  register_due_ = true;
}

std::uint64_t Stream::pinned_bytes() const noexcept {
  return std::uint64_t{windows_[0].buffer.length} + windows_[1].buffer.length;
}

// --- what the peer says --------------------------------------------------------------------------

void Stream::heard(ae::TimePoint now) noexcept {
  heard_ = true;
  heard_at_ = now;
  ++received_;
  // A peer that cannot be asked: its software is running, so it has handled what came before.
  if (!can_probe()) proven_ = sent_;
}

// Messages that no work of ours earned the peer come out of a budget, so that a flood of them ends
// the connection instead of eating the loop.
bool Stream::spend_control(ae::TimePoint now) noexcept {
  const std::chrono::duration<double> elapsed = now - tokens_at_;
  tokens_at_ = now;
  tokens_ = std::min(config_.control_burst, tokens_ + elapsed.count() * config_.control_rate);
  if (tokens_ < 1) {
    fail("the peer floods us with control messages", Excess::kMessages);
    return false;
  }
  tokens_ -= 1;
  return true;
}

void Stream::on_data(std::uint32_t length, ae::TimePoint now) {
  if (failure_ != nullptr) return;
  heard(now);
  if (length == 0) {
    (void)spend_control(now);
    return;
  }
  // The peer cannot know of a window whose announcement has not left yet.
  if (offered_ == kNone || register_due_)
    return fail("the peer wrote into a window that was not offered");
  Window& window = windows_[offered_];
  if (length > window.buffer.length - window.filled)
    return fail("the peer wrote past the end of the window");
  window.filled += length;
  tokens_ = std::min(config_.control_burst, tokens_ + kEarnedByData);
  // It knows this window, so it handled the offer and every message before it.
  proven_ = std::max(proven_, offer_sent_);
  if (!window.full()) return;
  ++window_turns_;
  if (window_may_change() && now - offered_at_ < kFastFill) {
    const std::uint64_t twice = 2 * std::uint64_t{window.buffer.length};
    desired_ = std::max(
        desired_, static_cast<std::uint32_t>(std::min<std::uint64_t>(twice, config_.max_window)));
  }
  last_full_at_ = now;
  drop_spare_ = false;
  offered_ = kNone;
  offer_next();
}

void Stream::on_control(std::span<const std::byte> bytes, ae::TimePoint now) {
  if (failure_ != nullptr) return;
  const std::optional<ControlMessage> message = decode(bytes);
  if (!message)
    return fail(bytes.size() == kControlSize ? "the peer sent a control message of unknown opcode"
                                             : "the peer sent a control message of a wrong size");
  heard(now);
  switch (message->opcode) {
    case Opcode::kRegisterXferMemory:
      return on_register(*message, now);
    case Opcode::kGetServerFeature:
      return on_feature(*message, now);
    case Opcode::kSetClientFeature:
    case Opcode::kKeepalive:
      (void)spend_control(now);
      return;
  }
}

void Stream::on_register(const ControlMessage& message, ae::TimePoint now) {
  // A window that we filled earned the peer this message.
  const bool earned = peer_.used == peer_.length;
  if (!earned && !spend_control(now)) return;
  if (peer_.length == 0 && !spend_control(now)) return;
  if (message.length == 0) return fail("the peer offered a window of no bytes");
  if (message.length > config_.max_peer_window)
    return fail("the peer offered a window beyond max-peer-window", Excess::kWindow);
  if (message.address + message.length < message.address)
    return fail("the peer offered a window that wraps around its memory");
  // It consumed the old window, so it handled every message that filled it.
  if (earned && peer_.length != 0) proven_ = std::max(proven_, sent_at_full_);
  peer_ = {message.address, message.length, message.key, 0};
}

void Stream::on_feature(const ControlMessage& message, ae::TimePoint now) {
  if (probe_outstanding_ && message.select == probe_select_) {
    probe_outstanding_ = false;
    proven_ = std::max(proven_, probe_covers_);
    return;
  }
  if (!spend_control(now)) return;
  // Everything else is an answer nobody waits for: were it answered, two peers might never stop.
  const bool servers = (message.select & kServerProbe) != 0;
  const bool question =
      config_.role == Role::kServer ? !servers || !peer_hello_ : servers && peer_hello_;
  if (!question) return;
  if (reply_count_ == kMaxReplies)
    return fail("the peer asks for features faster than it listens", Excess::kMessages);
  replies_[(reply_head_ + reply_count_) % kMaxReplies] = message.select;
  ++reply_count_;
}

// --- reading -------------------------------------------------------------------------------------

std::uint64_t Stream::unread_bytes() const noexcept {
  std::uint64_t total = 0;
  for (const Window& window : windows_)
    if (window.buffer.data != nullptr) total += window.filled - window.read;
  return total;
}

std::size_t Stream::read(std::byte* into, std::size_t size, ae::TimePoint) {
  std::size_t done = 0;
  while (done < size && has_unread()) {
    Window& window = windows_[front_];
    const std::size_t chunk = std::min<std::size_t>(size - done, window.filled - window.read);
    std::memcpy(into + done, window.buffer.data + window.read, chunk);
    window.read += static_cast<std::uint32_t>(chunk);
    done += chunk;
    if (window.read < window.buffer.length) continue;
    ++window_turns_;
    // This one is spare now. The other may be full too, or the one the peer writes.
    const std::size_t other = 1 - front_;
    front_ = other == offered_ || windows_[other].read < windows_[other].filled ? other : kNone;
    if (offered_ == kNone) offer_next();
  }
  return done;
}

// --- sending -------------------------------------------------------------------------------------

std::uint64_t Stream::reserve() const noexcept {
  return std::min<std::uint64_t>(kReserve, config_.peer_receives / 4);
}

bool Stream::few_receives() const noexcept {
  return unproven_messages() + reserve() >= config_.peer_receives;
}

bool Stream::starved(ae::TimePoint now) const noexcept {
  return few_receives() && (can_probe() || now - last_write_at_ < kPace);
}

std::uint32_t Stream::sendable(std::size_t staged, ae::TimePoint now) const noexcept {
  if (failure_ != nullptr || peer_closed_ || staged == 0) return 0;
  const std::uint32_t left = peer_window_left();
  if (left == 0 || starved(now)) return 0;
  return static_cast<std::uint32_t>(std::min<std::size_t>(staged, left));
}

std::optional<ae::TimePoint> Stream::retry_at(std::size_t staged) const noexcept {
  if (failure_ != nullptr || peer_closed_ || staged == 0 || peer_window_left() == 0 || can_probe())
    return std::nullopt;
  if (!few_receives()) return std::nullopt;
  return last_write_at_ + kPace;
}

void Stream::on_write_posted(std::uint32_t length, ae::TimePoint now) {
  assert(length <= peer_window_left());
  peer_.used += length;
  ++sent_;
  last_write_at_ = now;
  if (peer_.used == peer_.length) sent_at_full_ = sent_;
}

std::optional<ControlMessage> Stream::next_control(ae::TimePoint) const noexcept {
  if (failure_ != nullptr || peer_closed_) return std::nullopt;
  ControlMessage message;
  if (register_due_) {
    const WindowBuffer& window = windows_[offered_].buffer;
    message.opcode = Opcode::kRegisterXferMemory;
    message.address = window.address;
    message.length = window.length;
    message.key = window.key;
    return message;
  }
  if (reply_count_ != 0) {
    message.opcode = Opcode::kGetServerFeature;
    message.select = replies_[reply_head_];
    return message;
  }
  if (!probe_outstanding_ && can_probe() &&
      unproven_messages() >= std::min<std::uint64_t>(kProbeAt, config_.peer_receives / 4)) {
    message.opcode = Opcode::kGetServerFeature;
    message.select = static_cast<std::uint16_t>((probe_select_ + 1) & ~kServerProbe);
    if (config_.role == Role::kServer) message.select |= kServerProbe;
    return message;
  }
  if (keepalive_due_) {
    message.opcode = Opcode::kKeepalive;
    return message;
  }
  return std::nullopt;
}

void Stream::on_control_posted(const ControlMessage& message, ae::TimePoint now) {
  ++sent_;
  last_write_at_ = now;
  switch (message.opcode) {
    case Opcode::kRegisterXferMemory:
      assert(register_due_);
      register_due_ = false;
      offered_at_ = now;
      offer_sent_ = sent_;
      break;
    case Opcode::kGetServerFeature:
      if (reply_count_ != 0 && replies_[reply_head_] == message.select) {
        reply_head_ = (reply_head_ + 1) % kMaxReplies;
        --reply_count_;
      } else {
        probe_outstanding_ = true;
        probe_select_ = message.select;
        probe_covers_ = sent_;
      }
      break;
    case Opcode::kKeepalive:
      keepalive_due_ = false;
      break;
    case Opcode::kSetClientFeature:
      break;
  }
}

// --- time ----------------------------------------------------------------------------------------

void Stream::tick(ae::TimePoint now, bool loop_was_stopped) {
  if (failure_ != nullptr || peer_closed_) return;
  // Before the first tick there may have been no connection for the peer to speak on.
  const bool first = !std::exchange(ticked_, true);
  if (loop_was_stopped || (first && !heard_)) heard_at_ = now;
  const bool promised = peer_hello_ && (peer_hello_->flags & Hello::kSendsKeepalives) != 0 &&
                        peer_hello_->keepalive_ms != 0;
  if (promised) {
    // Three keepalives missed, and half an interval for their way.
    const auto interval = std::chrono::milliseconds(peer_hello_->keepalive_ms);
    if (now - heard_at_ > 3 * interval + interval / 2)
      return fail("the peer has been silent for three keepalive intervals");
  }
  if (config_.keepalive > ae::Duration::zero() && now >= keepalive_at_) {
    keepalive_at_ = now + config_.keepalive;
    if (now - last_write_at_ >= config_.keepalive / 2) {
      if (unproven_messages() + reserve() < config_.peer_receives / 2)
        keepalive_due_ = true;
      else
        silent_probe_ = true;
    }
  }
  window_failed_ = false;  // worth another try
  // Quiet again: one window of the first length is enough.
  if (now - last_full_at_ > std::chrono::seconds(1)) {
    if (window_may_change()) desired_ = config_.window;
    drop_spare_ = spare_slot() != kNone && offered_ != kNone;
    // One that waited for a successor of another length may have the right one now.
    if (offered_ == kNone) offer_next();
  }
}

void Stream::check() const {
#ifndef NDEBUG
  for (const Window& window : windows_) {
    assert(window.read <= window.filled && window.filled <= window.buffer.length);
    assert(window.buffer.data != nullptr || window.buffer.length == 0);
  }
  assert(offered_ == kNone || windows_[offered_].buffer.data != nullptr);
  assert(front_ == kNone || windows_[front_].buffer.data != nullptr);
  assert(offered_ == kNone || !windows_[offered_].full());
  assert(!register_due_ || offered_ != kNone);
  assert(peer_.used <= peer_.length);
  assert(proven_ <= sent_);
  assert(reply_count_ <= kMaxReplies);
  // Only the window being read and the one being written may hold bytes.
  assert(offered_ == kNone || front_ != kNone);
  for (std::size_t i = 0; i < windows_.size(); ++i) {
    const Window& window = windows_[i];
    if (window.read < window.filled && !released_)
      assert(front_ != kNone && (i == offered_ || window.full()));
    if (i == front_ && i != offered_) assert(window.full() && window.read < window.filled);
  }
  // What was announced but not yet posted cannot hold anything.
  assert(!register_due_ || windows_[offered_].filled == 0);
  // No offer while there is something to offer would be a stream that stands still for ever.
  for (std::size_t i = 0; i < windows_.size(); ++i)
    if (offered_ == kNone && is_spare(i) && failure_ == nullptr && !peer_closed_ && !released_)
      assert(windows_[i].buffer.length != desired_ && !window_failed_);
  assert(offer_sent_ <= sent_ && sent_at_full_ <= sent_ && probe_covers_ <= sent_);
  assert(tokens_ >= 0 && tokens_ <= config_.control_burst);
#endif
}

}  // namespace conn::rdma
