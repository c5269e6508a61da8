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

// Converts a version of three numbers with dots between (AECONN_VERSION) into the three numbers
// that a hello carries.
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

StreamReceiver::Peer windows_of(const PeerFacts& peer, Role role) noexcept {
  // A Valkey server needs windows that all have one length; a Valkey client accepts any lengths.
  if (!peer.is_aeconn()) return {.may_change = role == Role::kServer};
  return {.may_change = peer.said(Hello::kWindowMayChange),
          .marks = peer.said(Hello::kMarksWindows),
          .takes_ahead =
              peer.said(Hello::kTakesAhead | Hello::kMarksWindows | Hello::kWindowMayChange)};
}

}  // namespace

Stream::Stream(const StreamConfig& config, ae::TimePoint now)
    : config_(config),
      inbound_({config.window, config.max_window, config.max_windows},
               windows_of(peer_, config.role), now),
      proof_(config.role, config.peer_receives, config.completions_prove, now),
      liveness_({config.keepalive, config.completions_prove}, now),
      budget_(config.control_rate, config.control_burst, now) {
  assert(flow::fits(config.peer_receives));
  if (config_.keepalive > ae::Duration::zero())
    config_.keepalive = std::max(config_.keepalive, flow::kLeastKeepalive);
}

void Stream::begin_path(std::uint64_t written, ae::TimePoint now) {
  assert(!peer_closed_ && !aborted_);
  failure_ = nullptr;  // left by an attempt that may have found no memory for a window
  excess_ = Excess::kNone;
  takes_data_ = !peer_finished_;
  inbound_.begin_again(windows_of(peer_, config_.role));
  if (peer_finished_) inbound_.end();
  proof_ = Proof(config_.role, config_.peer_receives, config_.completions_prove, now);
  liveness_ = Liveness({config_.keepalive, config_.completions_prove}, now);
  budget_ = ControlBudget(config_.control_rate, config_.control_burst, now);
  peer_windows_ = PeerWindows(written);
  earned_ = 0;
  reply_count_ = 0;
  mark_due_ = waited_ = false;
  path_dead_ = Liveness::Peer::kAlive;
  // The message that ends our stream must follow the bytes that are to be sent again. If it was
  // sent before, the peer may not have got it.
  finish_ = Finish::kNone;
}

void Stream::go_on(std::uint64_t written, Hello hello) {
  peer_windows_ = PeerWindows(written);
  hello.keepalive_ms = peer_.keepalive_ms();
  on_hello(hello);
}

void Stream::on_hello(const Hello& hello) {
  peer_.set(hello);
  inbound_.set_peer(windows_of(peer_, config_.role));
  proof_.on_hello(peer_.receives(), peer_.said(Hello::kAnswersProbes));
  liveness_.set_promise(peer_.promise());
}

Hello Stream::hello() const {
  Hello mine;
  mine.release = kOurRelease;
  mine.flags = Hello::kWindowMayChange | Hello::kAnswersProbes | Hello::kMarksWindows |
               Hello::kTakesAhead | Hello::kHearsAborts | Hello::kFinishes;
  if (config_.receives != 0) {
    mine.flags |= Hello::kTellsReceives;
    mine.receives = config_.receives;
  }
  if (config_.keepalive > ae::Duration::zero()) {
    mine.flags |= Hello::kSendsKeepalives;
    const ae::Duration promise = std::max(config_.keepalive, PeerFacts::kShortestPromise);
    mine.keepalive_ms = static_cast<std::uint32_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(promise).count());
  }
  return mine;
}

void Stream::fail(const char* why, Excess excess) noexcept {
  if (failure_ != nullptr) return;
  failure_ = why;
  excess_ = excess;
  takes_data_ = false;
  inbound_.end();
}

void Stream::no_window(ae::TimePoint now) {
  if (!inbound_.no_window(now)) fail("no memory for a receive window");
}

// --- messages of the peer ------------------------------------------------------------------------

bool Stream::spend_control(ae::TimePoint now) noexcept {
  const bool paid = budget_.spend(now);
  if (!paid) fail("the peer floods us with control messages", Excess::kMessages);
  return paid;
}

void Stream::on_data(std::uint32_t immediate, ae::TimePoint now) {
  if (failure_ != nullptr) return;
  liveness_.on_heard(now);
  proof_.on_received();
  const bool waited = (immediate & kWaited) != 0 && peer_.said(Hello::kTakesAhead);
  const std::uint32_t length = waited ? immediate & ~kWaited : immediate;
  if (length == 0) {
    (void)spend_control(now);
    return;
  }
  if (peer_finished_) return fail("the peer wrote after the end of its stream");
  std::uint64_t announced_by = 0;
  if (const char* why = inbound_.on_data(length, waited, now, announced_by); why != nullptr)
    return fail(why);
  // The peer wrote into this window, so it has handled our offer of it and every message before
  // that.
  proof_.prove(announced_by);
}

void Stream::on_control(std::span<const std::byte> bytes, ae::TimePoint now) {
  if (failure_ != nullptr) return;
  const std::optional<ControlMessage> message = decode(bytes);
  if (!message)
    return fail(bytes.size() == kControlSize ? "the peer sent a control message of unknown opcode"
                                             : "the peer sent a control message of a wrong size");
  liveness_.on_heard(now);
  proof_.on_received();
  switch (message->opcode) {
    case Opcode::kRegisterXferMemory:
      return on_register(*message, now);
    case Opcode::kGetServerFeature:
      return on_feature(*message, now);
    case Opcode::kSetClientFeature:
      if (message->select == kWindowMark && inbound_.expects_mark()) {
        if (const char* why = inbound_.on_mark(); why != nullptr) fail(why);
        return;
      }
      if ((message->select == kFinished && can_finish()) ||
          (message->select == kShutDown && resumes_))
        return on_finished(*message, now);
      if (message->select == kAborted) peer_aborted_ = true;
      (void)spend_control(now);
      return;
    case Opcode::kKeepalive:
      if (!peer_.said(Hello::kSendsKeepalives) || !budget_.takes_keepalive(config_.receives, now))
        (void)spend_control(now);
      return;
  }
}

void Stream::on_register(const ControlMessage& message, ae::TimePoint now) {
  const bool early = message.select == kWindowMark && peer_.said(Hello::kMarksWindows);
  const bool ahead = message.select == kWindowAhead && peer_.said(Hello::kTakesAhead);
  // The peer need not pay for this offer from its budget if we have filled its window, unless it
  // sent the offer before it saw that.
  const bool filled = peer_windows_.left() == 0 && !early && !ahead;
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
  // The peer has consumed its old window, so it has handled every message that filled that window.
  if (filled && earned) proof_.prove_full();
  if (early) {
    mark_due_ = true;
    // The new window replaces windows whose offers were already paid for: the peer may offer as
    // many again.
    const std::size_t replaced = peer_windows_.ahead() + (peer_windows_.left() != 0 ? 1 : 0);
    earned_ = static_cast<std::uint32_t>(std::min(earned_ + replaced, kMostAnnounced));
  }
  const PeerWindows::Window window{message.address, message.length, message.key};
  if (ahead) {
    if (const char* why = peer_windows_.append(window); why != nullptr) fail(why);
    return;
  }
  peer_windows_.replace(window);
  if (early) peer_windows_.trim();  // the peer takes back the others because they are idle
}

void Stream::on_finished(const ControlMessage& message, ae::TimePoint now) {
  const bool leaves = message.select == kFinished;
  const bool again = peer_finished_ && (peer_leaves_ || !leaves);
  if (again && !spend_control(now)) return;
  if (message.features != inbound_.line().total())
    return fail("the peer ended its stream at another byte than the last that arrived");
  peer_leaves_ = peer_leaves_ || leaves;
  if (std::exchange(peer_finished_, true)) return;
  input_over_ = true;
  takes_data_ = false;
  inbound_.end();
}

void Stream::on_feature(const ControlMessage& message, ae::TimePoint now) {
  if (proof_.on_answer(message.select)) return;
  if (!budget_.takes_probe(proof_.received(), config_.receives) && !spend_control(now)) return;
  // Answers the message only if it is a probe, not if it is an unexpected answer to a probe:
  // otherwise two peers might answer each other for ever.
  const bool servers = (message.select & Proof::kServerProbe) != 0;
  const bool question =
      config_.role == Role::kServer ? !servers || !peer_.is_aeconn() : servers && peer_.is_aeconn();
  if (!question) return;
  if (reply_count_ == flow::kMostAnswers)
    return fail("the peer asks for features faster than it listens", Excess::kMessages);
  replies_[(reply_head_ + reply_count_) % flow::kMostAnswers] = message.select;
  ++reply_count_;
}

// --- sending -------------------------------------------------------------------------------------

std::uint32_t Stream::sendable(std::size_t staged, ae::TimePoint now,
                               std::uint32_t planned) const noexcept {
  if (failure_ != nullptr || peer_closed_ || aborted_ || staged == 0) return 0;
  const std::uint32_t left = peer_windows_.left();
  if (left == 0) return 0;
  if (proof_.starved(now, planned)) {
    AECONN_PROBE(rnr, config_.connection, proof_.unproven() + planned, 0);
    return 0;
  }
  return static_cast<std::uint32_t>(std::min<std::size_t>(staged, left));
}

std::optional<ae::TimePoint> Stream::retry_at(std::size_t staged) const noexcept {
  if (failure_ != nullptr || peer_closed_ || aborted_ || staged == 0 || peer_windows_.left() == 0)
    return std::nullopt;
  return proof_.retry_at();
}

void Stream::on_write_posted(std::uint32_t length, ae::TimePoint now) {
  proof_.on_posted(now);
  waited_ = false;
  if (!peer_windows_.use(length) || length == 0) return;
  proof_.on_full();
  earned_ = std::min<std::uint32_t>(earned_ + 1, kMostAnnounced);
  AECONN_PROBE(window_full, config_.connection, peer_windows_.left());
}

void Stream::on_staged_left() noexcept {
  if (peer_windows_.any() && peer_windows_.left() == 0 && peer_.said(Hello::kTakesAhead))
    waited_ = true;
}

Stall Stream::waits_for(ae::TimePoint now) const noexcept {
  if (failure_ != nullptr || peer_closed_ || aborted_ || !peer_windows_.any()) return Stall::kNone;
  if (peer_windows_.left() == 0) return Stall::kWindow;
  return proof_.starved(now, 0) ? Stall::kReceives : Stall::kNone;
}

bool Stream::finish(bool leaves) noexcept {
  assert(can_finish());
  if (failure_ != nullptr || peer_closed_ || aborted_) return false;
  if (finish_ != Finish::kNone && (!leaves || leaves_ || !resumes_)) return false;
  leaves_ = leaves;
  finish_ = Finish::kDue;
  return true;
}

bool Stream::abort() noexcept {
  if (!std::exchange(aborted_, true)) abort_due_ = peer_.said(Hello::kHearsAborts);
  return peer_.said(Hello::kHearsAborts);
}

// Returns the message at place `planned` in the order in which messages are due: a mark, offers of
// windows, answers to probes, the end of our stream, then a probe and a keepalive. `place` counts
// down to that message.
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
  // The mark, which tells the peer that we change to its new window, is sent before any byte goes
  // into that window.
  if (mark_due_) {
    message.opcode = Opcode::kSetClientFeature;
    message.select = kWindowMark;
    if (place == 0) return message;
    --place;
  }
  const ReceiveWindowQueue& line = inbound_.line();
  for (std::size_t i = 0; i < line.unannounced(); ++i) {
    // The peer already has a window, and this offer is of one more or of a shorter one. Like data,
    // it must wait for a proof that the peer has receives.
    if (line.is_ahead(i) && proof_.can_probe() && proof_.few_receives(planned - place)) break;
    if (place-- != 0) continue;
    const WindowBuffer& window = line.to_announce(i);
    message.opcode = Opcode::kRegisterXferMemory;
    message.select = line.is_marked(i) ? kWindowMark : line.is_ahead(i) ? kWindowAhead : 0;
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
  place -= static_cast<std::uint32_t>(reply_count_);
  // Like data, which it ends, this message waits for a proof that the peer has receives.
  if (finish_ == Finish::kDue && !proof_.few_receives(planned - place)) {
    message.opcode = Opcode::kSetClientFeature;
    message.select = leaves_ || !resumes_ ? kFinished : kShutDown;
    message.features = peer_windows_.total();
    if (place == 0) return message;
    --place;
  }
  return due_after_answers(planned, place);
}

// Returns the message at place `place` among a probe and a keepalive, if these are due. The probe
// counts the messages before it, so the keepalive may be the last one that makes it due.
std::optional<ControlMessage> Stream::due_after_answers(std::uint32_t planned,
                                                        std::uint32_t place) const noexcept {
  const bool keepalive = liveness_.keepalive_is_due();
  const bool probe_first = proof_.probe_is_due(planned - place);
  const bool probes = probe_first || (keepalive && proof_.probe_is_due(planned - place + 1));
  const std::uint32_t place_of_probe = probe_first ? 0 : 1;
  ControlMessage message;
  if (probes && place == place_of_probe) {
    message.opcode = Opcode::kGetServerFeature;
    message.select = proof_.next_probe();
    return message;
  }
  if (keepalive && place == (probe_first ? 1 : 0)) {
    message.opcode = Opcode::kKeepalive;
    return message;
  }
  return std::nullopt;
}

void Stream::on_control_posted(const ControlMessage& message, ae::TimePoint now) {
  proof_.on_posted(now);
  switch (message.opcode) {
    case Opcode::kRegisterXferMemory:
      inbound_.announced(proof_.sent(), now);
      AECONN_PROBE(window_offered, config_.connection, message.length);
      break;
    case Opcode::kGetServerFeature:
      if (reply_count_ != 0 && replies_[reply_head_] == message.select) {
        reply_head_ = (reply_head_ + 1) % flow::kMostAnswers;
        --reply_count_;
      } else {
        proof_.on_probe_posted(message.select);
      }
      break;
    case Opcode::kKeepalive:
      liveness_.on_keepalive_posted();
      break;
    case Opcode::kSetClientFeature:
      if (message.select == kFinished || message.select == kShutDown)
        finish_ = Finish::kPosted;
      else
        (message.select == kAborted ? abort_due_ : mark_due_) = false;
      break;
  }
}

// --- time-outs and ticks -------------------------------------------------------------------------

void Stream::tick(ae::TimePoint now, bool loop_was_stopped) {
  if (failure_ != nullptr || peer_closed_) return;
  const Liveness::Facts facts{.last_write_at = proof_.last_post_at(),
                              .all_completed = proof_.all_completed(),
                              .takes_keepalive = proof_.takes_keepalive(),
                              .takes_last_keepalive = proof_.takes_last_keepalive()};
  const Liveness::Peer peer = liveness_.tick(now, loop_was_stopped, facts);
  if (peer != Liveness::Peer::kAlive) {
    if (!resumes_) return fail(why(peer));
    path_dead_ = peer;
    return;
  }
  inbound_.tick(now);
  peer_windows_.trim();
}

ae::TimePoint Stream::next_tick() const noexcept {
  if (failure_ != nullptr || peer_closed_) return ae::TimePoint::max();
  return std::min(liveness_.next_tick(), inbound_.next_tick());
}

void Stream::check() const {
#ifndef NDEBUG
  inbound_.check();
  peer_windows_.check();
  proof_.check();
  budget_.check();
  assert(earned_ <= kMostAnnounced && reply_count_ <= flow::kMostAnswers);
  assert(input_over_ == (peer_closed_ || peer_finished_));
#endif
}

}}}  // namespace conn::rdma
