// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/protocol/stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string_view>
#include <utility>

#include "conn/kit/probes.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// A window that filled within this time was too small.
constexpr ae::Duration kFastFill = std::chrono::milliseconds(5);
// A window for which there was no memory is asked for again after this time.
constexpr ae::Duration kTryAgain = std::chrono::seconds(1);
// Keepalives may be sent more often, but a shorter interval is not promised to the peer: no loop is
// that punctual.
constexpr ae::Duration kShortestPromise = std::chrono::milliseconds(100);
// Our probes as a server carry this bit, so that answers and probes cannot be confused.
constexpr std::uint16_t kServerProbe = 0x8000;
// AECONN_VERSION in the form of the hello; the text has three numbers with dots between.
constexpr std::array<std::uint8_t, 3> release_of(std::string_view text) {
  std::array<std::uint8_t, 3> numbers{};
  std::size_t at = 0;
  for (const char c : text) {
    if (c == '.' && at < 2)
      ++at;
    else if (c >= '0' && c <= '9')
      numbers[at] = static_cast<std::uint8_t>(numbers[at] * 10 + (c - '0'));
    else
      break;
  }
  return numbers;
}
constexpr std::array<std::uint8_t, 3> kOurRelease = release_of(AECONN_VERSION);

// The next time after `now` that is common to all connections of this interval.
ae::TimePoint next_of(ae::Duration interval, ae::TimePoint now) noexcept {
  if (interval <= ae::Duration::zero()) return ae::TimePoint::max();
  return now - now.time_since_epoch() % interval + interval;
}

}  // namespace

Stream::Stream(const StreamConfig& config, ae::TimePoint now)
    : config_(config),
      desired_(config.window),
      last_full_at_(now),
      last_data_at_(now),
      tokens_(config.control_burst),
      tokens_at_(now),
      heard_at_(now),
      last_write_at_(now),
      keepalive_at_(next_of(config.keepalive, now)) {
  assert(config.window != 0 && flow::fits(config.peer_receives));
  if (config_.keepalive > ae::Duration::zero())
    config_.keepalive = std::max(config_.keepalive, flow::kLeastKeepalive);
}

void Stream::on_hello(const Hello& hello) { peer_hello_ = hello; }

void Stream::on_open(ae::TimePoint now) noexcept {
  if (!heard_) heard_at_ = now;
}

std::string Stream::peer_kind() const {
  if (!peer_hello_) return "valkey";
  const auto& [major, minor, patch] = peer_hello_->release;
  if (major == 0 && minor == 0 && patch == 0) return "aeconn";
  return fmt::format("aeconn {}.{}.{}", major, minor, patch);
}

Hello Stream::hello() const {
  Hello mine;
  mine.release = kOurRelease;
  mine.flags = Hello::kWindowMayChange | Hello::kAnswersProbes | Hello::kMarksWindows |
               Hello::kTakesAhead | Hello::kHearsAborts;
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
  if (peer_hello_) return peer_said(Hello::kWindowMayChange);
  return config_.role == Role::kServer;  // a Valkey server needs one length, a client does not
}

// More window memory is outstanding than needed, the windows are empty, and the peer marks where it
// leaves them.
bool Stream::may_recall() const noexcept {
  return has_long_window() && !line_.leaving() && !line_.to_announce() && !has_unread() &&
         window_may_change() && peer_said(Hello::kMarksWindows);
}

// Without the window that is being read.
std::uint32_t Stream::most_wanted() const noexcept {
  constexpr std::uint32_t kTaken =
      Hello::kTakesAhead | Hello::kMarksWindows | Hello::kWindowMayChange;
  if (!peer_said(kTaken)) return 1;
  // All unread bytes must be countable in 32 bits (leave_windows()).
  const std::uint32_t counted = 0xffffffffu / config_.max_window;
  return std::max(std::min(config_.max_windows, counted), 2u) - 1;
}

std::uint32_t Stream::wanted_window() const noexcept {
  if (failure_ != nullptr || window_failed_ || peer_closed_ || released_) return 0;
  if (recall_ && may_recall()) return line_.has_spare() ? 0 : desired_;
  // A spare window of another length, if there is one, is kept in case there is no memory.
  return wants_another() && line_.held() <= wanted_ ? desired_ : 0;
}

void Stream::provide_window(const WindowBuffer& buffer) {
  assert(buffer.length == wanted_window());
  if (std::exchange(recall_, false) && may_recall()) line_.leave();
  line_.add(buffer);
}

void Stream::replace_window(const WindowBuffer& buffer) { line_.replace_last(buffer); }

void Stream::no_window(ae::TimePoint now) {
  window_failed_ = true;
  window_failed_until_ = now + kTryAgain;
  recall_ = false;
  if (line_.held() == 0) return fail("no memory for a receive window");
  offer_spares();
}

WindowBuffer Stream::take_discarded() noexcept {
  if (!line_.has_spare() || released_) {
    drop_spare_ = false;
    return {};
  }
  // Without an offer, the last window that could be offered is kept until there is a better one.
  const bool too_many = line_.held() > wanted_ + 1;
  const bool room = line_.held() <= wanted_;
  if (line_.outstanding() == 0 && (room || window_failed_)) return {};
  return line_.take_spare_but(drop_spare_ || too_many ? 0 : desired_);
}

void Stream::leave_windows(std::byte* into) noexcept {
  const std::uint64_t unread = into != nullptr ? unread_bytes() : 0;
  if (unread != 0) line_.copy_unread(into);
  released_ = true;
  line_.become({into, static_cast<std::size_t>(unread)});
}

void Stream::offer_spares() noexcept {
  if (peer_closed_ || failure_ != nullptr || released_) return;
  while (wants_another() && line_.add_spare(desired_)) {
  }
  // A spare window of another length waits, because wanted_window() asks for its successor; it is
  // offered if there was no memory for that.
  if (window_failed_ && line_.outstanding() == 0 && !line_.leaving()) (void)line_.add_spare(0);
}

// --- what the peer says --------------------------------------------------------------------------

void Stream::heard(ae::TimePoint now) noexcept {
  heard_ = true;
  heard_at_ = now;
  asked_at_ = {};
  ++received_;
  // A peer that cannot be probed: its software is running, so it has handled what came before.
  if (!can_probe()) proven_ = sent_;
}

// Messages that nothing we did earned the peer are paid from a budget, so that a flood of them ends
// the connection instead of using up the loop's time.
bool Stream::spend_control(ae::TimePoint now) noexcept {
  // The loop's time may be older than the stream: it does not advance while a handler runs.
  const std::chrono::duration<double> elapsed = std::max(now - tokens_at_, ae::Duration::zero());
  tokens_at_ = std::max(now, tokens_at_);
  tokens_ =
      std::min<double>(config_.control_burst, tokens_ + elapsed.count() * config_.control_rate);
  if (tokens_ < 1) {
    fail("the peer floods us with control messages", Excess::kMessages);
    return false;
  }
  tokens_ -= 1;
  return true;
}

// Whether so many messages came since the peer's last probe that an aeconn peer would probe again.
bool Stream::question_is_due() noexcept {
  const std::uint64_t since = received_ - std::exchange(received_at_question_, received_) - 1;
  const bool told = config_.receives != 0;
  return since >= flow::probe_at(told ? flow::counted(config_.receives) : flow::kPlainReceives);
}

// Whether an aeconn peer may send a keepalive: at its interval, or delayed behind a stopped loop.
bool Stream::keepalive_is_due(ae::TimePoint now) noexcept {
  if (!peer_said(Hello::kSendsKeepalives)) return false;
  const std::uint32_t at_once = std::max(config_.receives, flow::kPlainReceives);
  const ae::TimePoint paid =
      std::max(keepalives_paid_, now - at_once * flow::kKeepalivePrice) + flow::kKeepalivePrice;
  if (paid > now) return false;
  keepalives_paid_ = paid;
  return true;
}

void Stream::on_data(std::uint32_t immediate, ae::TimePoint now) {
  if (failure_ != nullptr) return;
  heard(now);
  const bool waited = (immediate & kWaited) != 0 && peer_said(Hello::kTakesAhead);
  const std::uint32_t length = waited ? immediate & ~kWaited : immediate;
  if (length == 0) {
    (void)spend_control(now);
    return;
  }
  const WindowLine::Window* const current = line_.current();
  if (current == nullptr) return fail("the peer wrote into a window that was not offered");
  if (length > current->end - current->filled)
    return fail("the peer wrote past the end of the window");
  // A window announced before their number grew does not show whether that number is enough.
  if (waited && current->filled == 0 && current->announced_at >= more_since_ &&
      was_idle(length, now))
    on_peer_waited(now);
  last_data_at_ = now;
  // The peer knows this window, so it has handled the offer and every message before it.
  proven_ = std::max(proven_, current->announced_by);
  if (!line_.fill(length, now)) return;
  ++window_turns_;
  last_length_ = current->buffer.length;
  last_rest_ = last_length_ - current->first;
  last_rest_took_ = now - current->first_at;
  if (!line_.leaving() && now - current->announced_at < kFastFill) grow();
  last_full_at_ = now;
  drop_spare_ = recall_ = false;
  reader_late_ = line_.outstanding() == 0 && !wants_another();
  offer_spares();
}

// The window that became full was too short.
void Stream::grow() noexcept {
  if (!window_may_change()) return;
  // At least twice as long; longer if the last burst filled longer ones.
  const std::uint64_t next = std::max<std::uint64_t>(2 * std::uint64_t{last_length_}, useful_);
  desired_ = std::max(
      desired_, static_cast<std::uint32_t>(std::min<std::uint64_t>(next, config_.max_window)));
  useful_ = std::max(useful_, last_length_);
}

// The peer has left windows for the next one; what it wrote into them can be read.
void Stream::on_mark() noexcept {
  if (line_.to_announce())
    return fail("the peer says that it left a window, and was given no other");
  line_.left();
  ++window_turns_;
  offer_spares();
}

// Whether nothing was in flight, for more than a small part of the time that a window takes, before
// the first `length` bytes of a window came. A peer that posts far ahead of its device also waits
// for windows, but loses no time by it.
bool Stream::was_idle(std::uint32_t length, ae::TimePoint now) const noexcept {
  if (last_rest_ == 0) return true;
  const double each = std::chrono::duration<double>(last_rest_took_).count() / last_rest_;
  const std::chrono::duration<double> since = now - last_full_at_;
  return since.count() > each * (length + last_length_ / 32.0);
}

// The peer had bytes and no window for them. Unless our reader was slow, longer windows would have
// been of use, or more of them where they have the maximum length.
void Stream::on_peer_waited(ae::TimePoint now) noexcept {
  if (reader_late_ || window_failed_) return;
  if (last_length_ < config_.max_window) return grow();
  const std::uint32_t before = wanted_;
  wanted_ = std::min(wanted_ == 1 ? wanted_next_ : wanted_ + 1, most_wanted());
  if (wanted_ == before) return;
  more_since_ = now;
  offer_spares();
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
      if (message->select == kWindowMark && line_.leaving()) return on_mark();
      if (message->select == kAborted) peer_aborted_ = true;
      (void)spend_control(now);
      return;
    case Opcode::kKeepalive:
      if (!keepalive_is_due(now)) (void)spend_control(now);
      return;
  }
}

void Stream::on_register(const ControlMessage& message, ae::TimePoint now) {
  const bool early = message.select == kWindowMark && peer_said(Hello::kMarksWindows);
  const bool ahead = message.select == kWindowAhead && peer_said(Hello::kTakesAhead);
  // A window that we filled earns the peer this message, unless the message was sent before the
  // peer saw that.
  const bool filled = peer_.left() == 0 && !early && !ahead;
  const bool earned = (filled || ahead) && earned_ != 0;
  if (earned)
    --earned_;
  else if (!spend_control(now))
    return;
  if (message.length == 0) return fail("the peer offered a window of no bytes");
  if (message.length > config_.max_peer_window)
    return fail("the peer offered a window beyond max-peer-window", Excess::kWindow);
  if (message.address + message.length < message.address)
    return fail("the peer offered a window that wraps around its memory");
  // The peer consumed the old window, so it has handled every message that filled it.
  if (filled && earned) proven_ = std::max(proven_, sent_at_full_);
  if (early) {
    mark_due_ = true;
    // The new window replaces windows that were already paid for.
    const std::size_t replaced = peer_.ahead() + (peer_.left() != 0 ? 1 : 0);
    earned_ = static_cast<std::uint32_t>(std::min(earned_ + replaced, kMostAnnounced));
  }
  const PeerWindows::Window window{message.address, message.length, message.key};
  if (!ahead)
    peer_.replace(window);
  else if (!peer_.append(window))
    fail("the peer announced more windows than it may");
}

void Stream::on_feature(const ControlMessage& message, ae::TimePoint now) {
  if (probe_outstanding_ && message.select == probe_select_) {
    probe_outstanding_ = false;
    proven_ = std::max(proven_, probe_covers_);
    return;
  }
  if (!question_is_due() && !spend_control(now)) return;
  // Anything else is an unexpected answer: if it were answered, two peers might never stop.
  const bool servers = (message.select & kServerProbe) != 0;
  const bool question =
      config_.role == Role::kServer ? !servers || !peer_hello_ : servers && peer_hello_;
  if (!question) return;
  if (reply_count_ == flow::kMostAnswers)
    return fail("the peer asks for features faster than it listens", Excess::kMessages);
  replies_[(reply_head_ + reply_count_) % flow::kMostAnswers] = message.select;
  ++reply_count_;
}

// --- reading -------------------------------------------------------------------------------------

std::size_t Stream::read(std::byte* into, std::size_t size, ae::TimePoint) {
  std::size_t done = 0;
  while (done < size && has_unread()) {
    const std::span<std::byte> unread = line_.unread();
    const std::size_t chunk = std::min(size - done, unread.size());
    if (into != nullptr) std::memcpy(into + done, unread.data(), chunk);
    done += chunk;
    if (!line_.consume(chunk)) continue;
    ++window_turns_;
    offer_spares();
  }
  return done;
}

std::size_t Stream::peek(std::span<std::span<const std::byte>> pieces) const noexcept {
  return line_.peek(pieces);
}

// --- sending -------------------------------------------------------------------------------------

std::uint64_t Stream::peer_receives() const noexcept {
  return peer_counts_receives() ? flow::counted(peer_hello_->receives) : config_.peer_receives;
}

std::uint64_t Stream::reserve() const noexcept { return flow::reserve(peer_receives()); }

bool Stream::few_receives(std::uint32_t planned) const noexcept {
  return unproven_messages() + planned + reserve() >= peer_receives();
}

// A peer that can be probed is waited for. Any other peer gets one message at a time, each when the
// one before it has found a receive: if it finds none, the device retries until there is one.
bool Stream::starved(ae::TimePoint now, std::uint32_t planned) const noexcept {
  if (!few_receives(planned)) return false;
  if (can_probe() || planned != 0) return true;
  return config_.completions_prove ? completed_ != sent_ : now - last_write_at_ < flow::kPace;
}

std::uint32_t Stream::sendable(std::size_t staged, ae::TimePoint now,
                               std::uint32_t planned) const noexcept {
  if (failure_ != nullptr || peer_closed_ || aborted_ || staged == 0) return 0;
  const std::uint32_t left = peer_window_left();
  if (left == 0) return 0;
  if (starved(now, planned)) {
    AECONN_PROBE(rnr, config_.connection, unproven_messages() + planned, 0);
    return 0;
  }
  return static_cast<std::uint32_t>(std::min<std::size_t>(staged, left));
}

std::optional<ae::TimePoint> Stream::retry_at(std::size_t staged) const noexcept {
  if (failure_ != nullptr || peer_closed_ || aborted_ || staged == 0 || peer_window_left() == 0 ||
      can_probe())
    return std::nullopt;
  if (config_.completions_prove || !few_receives()) return std::nullopt;
  return last_write_at_ + flow::kPace;
}

void Stream::on_write_posted(std::uint32_t length, ae::TimePoint now) {
  ++sent_;
  last_write_at_ = now;
  waited_ = false;
  if (!peer_.use(length) || length == 0) return;
  sent_at_full_ = sent_;
  earned_ = std::min<std::uint32_t>(earned_ + 1, kMostAnnounced);
  AECONN_PROBE(window_full, config_.connection, peer_.left());
}

void Stream::on_staged_left() noexcept {
  if (peer_.any() && peer_.left() == 0 && peer_said(Hello::kTakesAhead)) waited_ = true;
}

// The peer has a window, and the offer is of one more, or of a shorter one: it waits for proof as
// data does.
bool Stream::offer_waits(std::size_t place, std::uint32_t planned) const noexcept {
  return line_.is_ahead(place) && can_probe() && few_receives(planned);
}

bool Stream::abort() noexcept {
  if (!std::exchange(aborted_, true)) abort_due_ = peer_said(Hello::kHearsAborts);
  return peer_said(Hello::kHearsAborts);
}

// The messages are due in this order: a mark, offers, answers, then a probe and a keepalive.
// `place` counts down to the one that is asked for.
std::optional<ControlMessage> Stream::next_control(ae::TimePoint,
                                                   std::uint32_t planned) const noexcept {
  if (failure_ != nullptr || peer_closed_) return std::nullopt;
  ControlMessage message;
  if (aborted_) {
    if (!abort_due_ || planned != 0) return std::nullopt;
    message.opcode = Opcode::kSetClientFeature;
    message.select = kAborted;
    return message;
  }
  std::uint32_t place = planned;
  if (mark_due_) {  // before any byte goes into the new window
    message.opcode = Opcode::kSetClientFeature;
    message.select = kWindowMark;
    if (place == 0) return message;
    --place;
  }
  for (std::size_t i = 0; i < line_.unannounced(); ++i) {
    if (offer_waits(i, planned - place)) break;
    if (place-- != 0) continue;
    const WindowBuffer& window = line_.to_announce(i);
    message.opcode = Opcode::kRegisterXferMemory;
    message.select = line_.is_marked(i) ? kWindowMark : line_.is_ahead(i) ? kWindowAhead : 0;
    message.address = window.address;
    message.length = window.length;
    message.key = window.key;
    return message;
  }
  if (place < reply_count_) {
    message.opcode = Opcode::kGetServerFeature;
    message.select = replies_[(reply_head_ + place) % flow::kMostAnswers];
    return message;
  }
  return due_after_answers(planned, place - static_cast<std::uint32_t>(reply_count_));
}

// The probe counts the messages before it, and a keepalive may be the last that makes it due.
std::optional<ControlMessage> Stream::due_after_answers(std::uint32_t planned,
                                                        std::uint32_t place) const noexcept {
  const auto probe_is_due = [&](std::uint32_t after) {
    return !probe_outstanding_ && can_probe() &&
           unproven_messages() + after >= flow::probe_at(peer_receives());
  };
  const bool probe_first = probe_is_due(planned - place);
  const bool probes = probe_first || (keepalive_due_ && probe_is_due(planned - place + 1));
  const std::uint32_t place_of_probe = probe_first ? 0 : 1;
  ControlMessage message;
  if (probes && place == place_of_probe) {
    message.opcode = Opcode::kGetServerFeature;
    message.select = static_cast<std::uint16_t>((probe_select_ + 1) & ~kServerProbe);
    if (config_.role == Role::kServer) message.select |= kServerProbe;
    return message;
  }
  if (keepalive_due_ && place == (probe_first ? 1 : 0)) {
    message.opcode = Opcode::kKeepalive;
    return message;
  }
  return std::nullopt;
}

void Stream::on_controls_posted(std::size_t count, ae::TimePoint now) {
  for (; count != 0; --count) {
    const std::optional<ControlMessage> message = next_control(now);
    assert(message);
    if (message) on_control_posted(*message, now);
  }
}

void Stream::on_control_posted(const ControlMessage& message, ae::TimePoint now) {
  ++sent_;
  last_write_at_ = now;
  switch (message.opcode) {
    case Opcode::kRegisterXferMemory:
      line_.announced(sent_, now);
      AECONN_PROBE(window_offered, config_.connection, message.length);
      break;
    case Opcode::kGetServerFeature:
      if (reply_count_ != 0 && replies_[reply_head_] == message.select) {
        reply_head_ = (reply_head_ + 1) % flow::kMostAnswers;
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
      (message.select == kAborted ? abort_due_ : mark_due_) = false;
      break;
  }
}

// --- time ----------------------------------------------------------------------------------------

// A peer whose software is silent may be stopped or slow. It is waited for as long as its device
// answers, as a kernel answers TCP keepalives for a stopped program. So silence only makes us probe
// the device, with a zero-length write: that is confirmed, or fails when the device's retries are
// used up, or is not confirmed in time. On iWARP a confirmation proves nothing, and silence itself
// counts.

// Zero: no interval was promised. An aeconn peer never promises one below kShortestPromise.
ae::Duration Stream::promised_interval() const noexcept {
  if (!peer_said(Hello::kSendsKeepalives) || peer_hello_->keepalive_ms == 0)
    return ae::Duration::zero();
  return std::max<ae::Duration>(std::chrono::milliseconds(peer_hello_->keepalive_ms),
                                kShortestPromise);
}

// Three missed keepalives, and a quarter of an interval for transit; unlimited where none was
// promised.
ae::Duration Stream::silence_allowed() const noexcept {
  const ae::Duration interval = promised_interval();
  return interval != interval.zero() ? 3 * interval + interval / 4 : ae::Duration::max();
}

void Stream::watch_silence(ae::TimePoint now) noexcept {
  const ae::Duration interval = promised_interval();
  if (interval == interval.zero()) return;
  const ae::Duration silent = now - last_sign();
  // Behind a message for which the peer may have no receive, the probe may have to wait for ever;
  // then the device's retries alone decide, if they are limited.
  const bool device_decides =
      config_.completions_prove && config_.device_gives_up && completed_ != sent_;
  if (silent > silence_allowed() && !device_decides)
    return fail("the peer has been silent for three keepalive intervals");
  if (config_.completions_prove && now >= next_look_at_silence()) {
    asked_at_ = now;
    silent_probe_ = true;
  }
}

// The device is probed one interval before the peer counts as gone, and then once per interval.
ae::TimePoint Stream::next_look_at_silence() const noexcept {
  const ae::Duration interval = promised_interval();
  if (interval == interval.zero()) return ae::TimePoint::max();
  if (!config_.completions_prove) return heard_at_ + silence_allowed();
  if (asked_at_ == ae::TimePoint{}) return last_sign() + silence_allowed() - interval;
  return asked_at_ + interval + ae::Duration(1);  // the silence then exceeds the limit
}

void Stream::tick(ae::TimePoint now, bool loop_was_stopped) {
  if (failure_ != nullptr || peer_closed_) return;
  if (loop_was_stopped) {
    heard_at_ = now;
    asked_at_ = {};
  }
  watch_silence(now);
  if (failure_ != nullptr) return;
  if (config_.keepalive > ae::Duration::zero() && now >= keepalive_at_) {
    keepalive_at_ = next_of(config_.keepalive, now);
    if (now - last_write_at_ >= config_.keepalive / 2) {
      // A silent peer posts no receives: the ones left are kept for what it is to read later.
      const ae::Duration interval = promised_interval();
      const bool silent = config_.completions_prove && interval != interval.zero() &&
                          now - heard_at_ > interval + interval / 4;
      if (!silent && unproven_messages() < flow::keepalive_below(peer_receives()))
        keepalive_due_ = true;
      else
        silent_probe_ = true;
    }
  }
  if (window_failed_ && now >= window_failed_until_) window_failed_ = false;  // try again
  // Quiet again: one window of the first length is enough.
  if (now - last_full_at_ >= flow::kWindowsQuiet) {
    if (window_may_change()) desired_ = config_.window;
    // The next burst must show that it can use as many.
    if (wanted_ > 1) wanted_next_ = std::max(std::exchange(wanted_, 1u) - 1, 2u);
    drop_spare_ = line_.has_spare() && line_.outstanding() != 0;
    // A spare window that waited for a successor may have the right length now.
    if (line_.outstanding() == 0) offer_spares();
  }
  if (now >= std::max(last_full_at_, last_data_at_) + long_quiet()) recall_ = may_recall();
}

// Several unused windows are replaced sooner than one long window.
ae::Duration Stream::long_quiet() const noexcept {
  return line_.outstanding() > 1 ? flow::kWindowsQuiet : flow::kLongWindowQuiet;
}

ae::TimePoint Stream::next_tick() const noexcept {
  if (failure_ != nullptr || peer_closed_) return ae::TimePoint::max();
  ae::TimePoint next = keepalive_at_;
  next = std::min(next, next_look_at_silence());
  if (window_failed_) next = std::min(next, window_failed_until_);
  if (desired_ != config_.window || wanted_ > 1 || (line_.has_spare() && line_.outstanding() != 0))
    next = std::min(next, last_full_at_ + flow::kWindowsQuiet);
  if (may_recall() && !recall_ && !window_failed_)
    next = std::min(next, std::max(last_full_at_, last_data_at_) + long_quiet());
  return next;
}

void Stream::check() const {
#ifndef NDEBUG
  line_.check();
  peer_.check();
  assert(wanted_ >= 1 && (wanted_ == 1 || wanted_ <= most_wanted()));
  assert(line_.held() <= std::max(config_.max_windows, 2u) || released_);
  assert(proven_ <= sent_ && completed_ <= sent_ && sent_at_full_ <= sent_);
  assert(probe_covers_ <= sent_ && earned_ <= kMostAnnounced && reply_count_ <= flow::kMostAnswers);
  // Windows that could be offered must be offered, or the stream would stall for ever.
  if (failure_ == nullptr && !peer_closed_ && !released_ && line_.outstanding() == 0 &&
      line_.has_spare() && wants_another())
    assert(!line_.has_spare_of(desired_) && !window_failed_);
  assert(tokens_ >= 0 && tokens_ <= config_.control_burst);
#endif
}

}}}  // namespace conn::rdma
