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
// How often a peer that cannot be asked may be sent one more message on trust, where a completion
// says nothing of its receives.
constexpr ae::Duration kPace = std::chrono::milliseconds(10);
// A window that filled within this time was too small.
constexpr ae::Duration kFastFill = std::chrono::milliseconds(5);
// Without data for so long there is no second window any more, and a long one is replaced.
constexpr ae::Duration kSpareQuiet = std::chrono::seconds(1);
constexpr ae::Duration kLongQuiet = std::chrono::seconds(10);
// Where there was no memory for a window it is asked for again.
constexpr ae::Duration kTryAgain = std::chrono::seconds(1);
// Keepalives may be sent more often, but the peer is not told to count on it: no loop is that
// punctual.
constexpr ae::Duration kShortestPromise = std::chrono::milliseconds(100);
// Our probes as a server carry this bit, so that answer and question cannot be mixed up.
constexpr std::uint16_t kServerProbe = 0x8000;
// What a data message adds to the peer's budget of control messages: a fast sender of small
// messages asks for proof, at most once in kProbeAt of them.
constexpr double kEarnedByData = 1.0 / 16;

// The next moment after `now` that all connections of this interval share.
ae::TimePoint next_of(ae::Duration interval, ae::TimePoint now) noexcept {
  if (interval <= ae::Duration::zero()) return ae::TimePoint::max();
  return now - now.time_since_epoch() % interval + interval;
}

}  // namespace

Stream::Stream(const StreamConfig& config, ae::TimePoint now)
    : config_(config),
      desired_(config.window),
      offered_at_(now),
      last_full_at_(now),
      last_data_at_(now),
      tokens_(config.control_burst),
      tokens_at_(now),
      heard_at_(now),
      last_write_at_(now),
      keepalive_at_(next_of(config.keepalive, now)) {
  assert(config.window != 0 && config.peer_receives >= 16);
}

void Stream::on_hello(const Hello& hello) { peer_hello_ = hello; }

void Stream::on_open(ae::TimePoint now) noexcept {
  if (!heard_) heard_at_ = now;
}

Hello Stream::hello() const {
  Hello mine;
  mine.flags = Hello::kWindowMayChange | Hello::kAnswersProbes | Hello::kMarksWindows;
  if (config_.receives != 0) {
    mine.flags |= Hello::kTellsReceives;
    mine.receives = config_.receives;
  }
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
  return window.buffer.data != nullptr && slot != offered_ && slot != leaving_ &&
         window.read == window.filled;
}

std::size_t Stream::spare_slot() const noexcept {
  for (std::size_t i = 0; i < windows_.size(); ++i)
    if (is_spare(i)) return i;
  return kNone;
}

// The one that is offered is longer than it need be, nothing is in it, and the peer says where it
// leaves it.
bool Stream::may_shorten() const noexcept {
  return has_long_window() && leaving_ == kNone && !register_due_ && !has_unread() &&
         window_may_change() && peer_hello_ && (peer_hello_->flags & Hello::kMarksWindows) != 0;
}

std::uint32_t Stream::wanted_window() const noexcept {
  if (failure_ != nullptr || window_failed_ || peer_closed_ || released_) return 0;
  if (offered_ != kNone && !(shorten_ && may_shorten())) return 0;
  // A spare one of another length, if there is one, waits in case that there is no memory.
  return free_slot() != kNone ? desired_ : 0;
}

void Stream::provide_window(const WindowBuffer& buffer) {
  const std::size_t slot = free_slot();
  assert(slot != kNone && buffer.data != nullptr && buffer.length == desired_);
  assert(!released_ && (offered_ == kNone || may_shorten()));
  windows_[slot] = {buffer, 0, 0, buffer.length};
  if (offered_ != kNone) leaving_ = std::exchange(offered_, kNone);
  shorten_ = false;
  offer(slot);
}

void Stream::replace_window(const WindowBuffer& buffer) {
  assert(register_due_ && windows_[offered_].filled == 0);
  windows_[offered_] = {buffer, 0, 0, buffer.length};
}

void Stream::no_window(ae::TimePoint now) {
  window_failed_ = true;
  window_failed_until_ = now + kTryAgain;
  shorten_ = false;
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

void Stream::leave_windows(std::byte* into) noexcept {
  // The one that is read comes first; another that holds bytes was filled after it.
  const std::uint64_t unread = into != nullptr ? unread_bytes() : 0;
  std::size_t copied = 0;
  for (std::size_t slot = front_; slot != kNone && copied < unread; slot = 1 - slot) {
    const Window& window = windows_[slot];
    const std::size_t left = window.filled - window.read;
    if (left != 0) std::memcpy(into + copied, window.buffer.data + window.read, left);
    copied += left;
  }
  released_ = true;
  register_due_ = false;
  offered_ = leaving_ = front_ = kNone;
  windows_ = {};
  if (unread == 0) return;
  // More than 4 GiB cannot have been offered: a window is 1 GiB at most.
  const auto size = static_cast<std::uint32_t>(unread);
  windows_[0] = {{into, size}, size, 0, size};
  front_ = 0;
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
  windows_[slot].end = windows_[slot].buffer.length;
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
  const std::size_t slot = leaving_ != kNone ? leaving_ : offered_;
  if (slot == kNone || (register_due_ && slot == offered_))
    return fail("the peer wrote into a window that was not offered");
  Window& window = windows_[slot];
  if (length > window.end - window.filled) return fail("the peer wrote past the end of the window");
  window.filled += length;
  last_data_at_ = now;
  tokens_ = std::min(config_.control_burst, tokens_ + kEarnedByData);
  // It knows this window, so it handled the offer and every message before it.
  if (slot == offered_) proven_ = std::max(proven_, offer_sent_);
  if (!window.full()) return;
  ++window_turns_;
  if (slot == offered_ && window_may_change() && now - offered_at_ < kFastFill) {
    // What the last burst came to was worth it; else twice as much.
    const std::uint32_t length_now = window.buffer.length;
    const std::uint64_t next = std::max<std::uint64_t>(2 * std::uint64_t{length_now}, useful_);
    desired_ = std::max(
        desired_, static_cast<std::uint32_t>(std::min<std::uint64_t>(next, config_.max_window)));
    useful_ = std::max(useful_, length_now);
  }
  last_full_at_ = now;
  drop_spare_ = shorten_ = false;
  if (slot == leaving_) return;  // the next is offered already
  offered_ = kNone;
  offer_next();
}

// The peer has left a window for the next; what it wrote into it can be read.
void Stream::on_mark() noexcept {
  if (register_due_) return fail("the peer says that it left a window, and was given no other");
  const std::size_t slot = std::exchange(leaving_, kNone);
  windows_[slot].end = windows_[slot].filled;
  if (front_ == slot && windows_[slot].read == windows_[slot].filled) front_ = offered_;
  ++window_turns_;
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
      if (message->select == kWindowMark && leaving_ != kNone) return on_mark();
      (void)spend_control(now);
      return;
    case Opcode::kKeepalive:
      (void)spend_control(now);
      return;
  }
}

void Stream::on_register(const ControlMessage& message, ae::TimePoint now) {
  // A window that we filled earned the peer this message, unless it came before the peer saw that.
  const bool early = message.select == kWindowMark && peer_hello_ &&
                     (peer_hello_->flags & Hello::kMarksWindows) != 0;
  const bool earned = peer_.used == peer_.length && !early;
  if (!earned && !spend_control(now)) return;
  if (peer_.length == 0 && !spend_control(now)) return;
  if (message.length == 0) return fail("the peer offered a window of no bytes");
  if (message.length > config_.max_peer_window)
    return fail("the peer offered a window beyond max-peer-window", Excess::kWindow);
  if (message.address + message.length < message.address)
    return fail("the peer offered a window that wraps around its memory");
  // It consumed the old window, so it handled every message that filled it.
  if (earned && peer_.length != 0) proven_ = std::max(proven_, sent_at_full_);
  if (early) mark_due_ = true;
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
    if (into != nullptr) std::memcpy(into + done, window.buffer.data + window.read, chunk);
    window.read += static_cast<std::uint32_t>(chunk);
    done += chunk;
    if (window.read < window.end) continue;
    ++window_turns_;
    // This one is spare now. The other may be full too, or the one the peer writes.
    const std::size_t other = 1 - front_;
    front_ = other == offered_ || windows_[other].read < windows_[other].filled ? other : kNone;
    if (offered_ == kNone) offer_next();
  }
  return done;
}

std::size_t Stream::peek(std::span<std::span<const std::byte>> pieces) const noexcept {
  if (!has_unread()) return 0;
  std::size_t count = 0;
  for (const std::size_t slot : {front_, 1 - front_}) {
    const Window& window = windows_[slot];
    if (window.read == window.filled || count == pieces.size()) break;
    pieces[count++] = {window.buffer.data + window.read, window.filled - window.read};
  }
  return count;
}

// --- sending -------------------------------------------------------------------------------------

std::uint64_t Stream::peer_receives() const noexcept {
  // Told by a peer of ours; fewer than a handful would leave no room for anything.
  constexpr std::uint64_t kFewest = 8;
  const bool told = peer_counts_receives();
  return told ? std::max<std::uint64_t>(peer_hello_->receives, kFewest) : config_.peer_receives;
}

std::uint64_t Stream::reserve() const noexcept {
  return std::min<std::uint64_t>(kReserve, peer_receives() / 4);
}

bool Stream::few_receives() const noexcept {
  return unproven_messages() + reserve() >= peer_receives();
}

// A peer that can be asked is waited for. Another gets one message at a time, each when the one
// before it has found a receive: should it find none the device tries again until there is one.
bool Stream::starved(ae::TimePoint now) const noexcept {
  if (!few_receives()) return false;
  if (can_probe()) return true;
  return config_.completions_prove ? completed_ != sent_ : now - last_write_at_ < kPace;
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
  if (config_.completions_prove || !few_receives()) return std::nullopt;
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
  if (mark_due_) {  // before any byte for the new window
    message.opcode = Opcode::kSetClientFeature;
    message.select = kWindowMark;
    return message;
  }
  if (register_due_) {
    const WindowBuffer& window = windows_[offered_].buffer;
    message.opcode = Opcode::kRegisterXferMemory;
    message.select = leaving_ != kNone ? kWindowMark : 0;
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
      unproven_messages() >= std::min<std::uint64_t>(kProbeAt, peer_receives() / 4)) {
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
      mark_due_ = false;
      break;
  }
}

// --- time ----------------------------------------------------------------------------------------

// Three keepalives missed, and a quarter of an interval for their way; for ever where none was
// promised.
ae::Duration Stream::silence_allowed() const noexcept {
  const bool promised = peer_hello_ && (peer_hello_->flags & Hello::kSendsKeepalives) != 0 &&
                        peer_hello_->keepalive_ms != 0;
  const auto interval = std::chrono::milliseconds(promised ? peer_hello_->keepalive_ms : 0);
  return promised ? 3 * interval + interval / 4 : ae::Duration::max();
}

void Stream::tick(ae::TimePoint now, bool loop_was_stopped) {
  if (failure_ != nullptr || peer_closed_) return;
  if (loop_was_stopped) heard_at_ = now;
  if (now - heard_at_ > silence_allowed())
    return fail("the peer has been silent for three keepalive intervals");
  if (config_.keepalive > ae::Duration::zero() && now >= keepalive_at_) {
    keepalive_at_ = next_of(config_.keepalive, now);
    if (now - last_write_at_ >= config_.keepalive / 2) {
      if (unproven_messages() + reserve() < peer_receives() / 2)
        keepalive_due_ = true;
      else
        silent_probe_ = true;
    }
  }
  if (window_failed_ && now >= window_failed_until_) window_failed_ = false;  // worth another try
  // Quiet again: one window of the first length is enough.
  if (now - last_full_at_ >= kSpareQuiet) {
    if (window_may_change()) desired_ = config_.window;
    drop_spare_ = spare_slot() != kNone && offered_ != kNone;
    // One that waited for a successor of another length may have the right one now.
    if (offered_ == kNone) offer_next();
  }
  if (now - last_full_at_ >= kLongQuiet && now - last_data_at_ >= kLongQuiet)
    shorten_ = may_shorten();
}

ae::TimePoint Stream::next_tick() const noexcept {
  if (failure_ != nullptr || peer_closed_) return ae::TimePoint::max();
  ae::TimePoint next = keepalive_at_;
  if (const ae::Duration allowed = silence_allowed(); allowed != ae::Duration::max())
    next = std::min(next, heard_at_ + allowed);
  if (window_failed_) next = std::min(next, window_failed_until_);
  if (desired_ != config_.window || (spare_slot() != kNone && offered_ != kNone))
    next = std::min(next, last_full_at_ + kSpareQuiet);
  if (may_shorten() && !shorten_ && !window_failed_)
    next = std::min(next, std::max(last_full_at_, last_data_at_) + kLongQuiet);
  return next;
}

void Stream::check() const {
#ifndef NDEBUG
  for (const Window& window : windows_) {
    assert(window.read <= window.filled && window.filled <= window.end);
    assert(window.end <= window.buffer.length);
    assert(window.buffer.data != nullptr || window.buffer.length == 0);
  }
  assert(offered_ == kNone || windows_[offered_].buffer.data != nullptr);
  assert(front_ == kNone || windows_[front_].buffer.data != nullptr);
  assert(offered_ == kNone || !windows_[offered_].full());
  assert(!register_due_ || offered_ != kNone);
  assert(peer_.used <= peer_.length);
  assert(proven_ <= sent_ && completed_ <= sent_);
  assert(reply_count_ <= kMaxReplies);
  // Only the window being read and the one being written may hold bytes.
  assert(offered_ == kNone || front_ != kNone);
  for (std::size_t i = 0; i < windows_.size(); ++i) {
    const Window& window = windows_[i];
    const bool written = i == offered_ || i == leaving_;
    if (window.read < window.filled && !released_)
      assert(front_ != kNone && (written || window.full()));
    if (i == front_ && !written) assert(window.full() && window.read < window.filled);
  }
  assert(leaving_ == kNone || (offered_ != kNone && offered_ != leaving_));
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
