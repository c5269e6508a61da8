// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/protocol/stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <string_view>

#include "conn/kit/probes.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// Converts a version such as "0.3.1" (AECONN_VERSION) into the three numbers that are sent to the
// peer at connection set-up.
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
  // A Valkey server needs receive windows that all have one length; a Valkey client accepts any
  // lengths.
  if (!peer.is_aeconn()) return {.may_change = role == Role::kServer};
  return {.may_change = peer.said(Hello::kWindowMayChange),
          .marks = peer.said(Hello::kMarksWindows),
          .takes_ahead =
              peer.said(Hello::kTakesAhead | Hello::kMarksWindows | Hello::kWindowMayChange)};
}

}  // namespace

Stream::Stream(const StreamConfig& config, ae::TimePoint now)
    : role_(config.role),
      completions_prove_(config.completions_prove),
      max_peer_window_(config.max_peer_window),
      peer_receives_(config.peer_receives),
      receives_(config.receives),
      inbound_({config.window, config.max_window, config.max_windows},
               windows_of(PeerFacts{}, config.role), now),
      outbound_(new_proof(now), config.connection),
      liveness_({config.keepalive, completions_prove_}, now),
      budget_(config.control_rate, config.control_burst, now) {
  assert(flow::fits(peer_receives_));
}

/// Returns the Proof (count of messages that the peer has handled) for a network path on which
/// nothing has been sent yet.
Proof Stream::new_proof(ae::TimePoint now) const noexcept {
  return {role_, peer_receives_, completions_prove_, now};
}

void Stream::begin_path(std::uint64_t written, ae::TimePoint now) {
  failure_ = nullptr;  // may be the failure of an earlier attempt to find a new path
  excess_ = Excess::kNone;
  peer_end_.begin_path();
  inbound_.begin_again(windows_of(peer(), role_));
  if (peer_end_.finished()) inbound_.end();
  outbound_.begin_path(written, new_proof(now));
  liveness_ = Liveness({liveness_.keepalive(), completions_prove_}, now);
  budget_.begin_again(now);
  answers_.clear();
}

void Stream::go_on(std::uint64_t written, Hello hello) {
  outbound_.set_written(written);
  hello.keepalive_ms = peer().keepalive_ms();
  on_hello(hello);
}

void Stream::on_hello(const Hello& hello) {
  outbound_.on_hello(hello);
  inbound_.set_peer(windows_of(peer(), role_));
  liveness_.set_promise(peer().promise());
}

Hello Stream::hello() const {
  Hello mine;
  mine.release = kOurRelease;
  mine.flags = Hello::kWindowMayChange | Hello::kAnswersProbes | Hello::kMarksWindows |
               Hello::kTakesAhead | Hello::kHearsAborts | Hello::kFinishes;
  if (receives_ != 0) {
    mine.flags |= Hello::kTellsReceives;
    mine.receives = receives_;
  }
  if (liveness_.keepalive() > ae::Duration::zero()) {
    mine.flags |= Hello::kSendsKeepalives;
    const ae::Duration promise = std::max(liveness_.keepalive(), PeerFacts::kShortestPromise);
    mine.keepalive_ms = static_cast<std::uint32_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(promise).count());
  }
  return mine;
}

void Stream::fail(const char* why, Excess excess) noexcept {
  if (failure_ != nullptr) return;
  failure_ = why;
  excess_ = excess;
  peer_end_.on_failed();
  inbound_.end();
  outbound_.stop();
}

void Stream::no_window(ae::TimePoint now) {
  if (!inbound_.no_window(now)) fail("no memory for a receive window");
}

// --- handling messages of the peer ---------------------------------------------------------------

bool Stream::spend_control(ae::TimePoint now) noexcept {
  const bool paid = budget_.spend(now);
  if (!paid) fail("the peer floods us with control messages", Excess::kMessages);
  return paid;
}

void Stream::on_data(std::uint32_t immediate, ae::TimePoint now) {
  if (failure_ != nullptr) return;
  liveness_.on_heard(now);
  outbound_.proof().on_received();
  const bool waited = (immediate & kWaited) != 0 && peer().said(Hello::kTakesAhead);
  const std::uint32_t length = waited ? immediate & ~kWaited : immediate;
  if (length == 0) {
    (void)spend_control(now);
    return;
  }
  if (!peer_end_.takes_data()) return fail("the peer wrote after the end of its stream");
  std::uint64_t announced_by = 0;
  if (const char* why = inbound_.on_data(length, waited, now, announced_by); why != nullptr)
    return fail(why);
  // The peer wrote into this window, so it has handled our message that offered the window, and
  // every message before that one.
  outbound_.proof().prove(announced_by);
}

void Stream::on_control(std::span<const std::byte> bytes, ae::TimePoint now) {
  if (failure_ != nullptr) return;
  const std::optional<ControlMessage> message = decode(bytes);
  if (!message)
    return fail(bytes.size() == kControlSize ? "the peer sent a control message of unknown opcode"
                                             : "the peer sent a control message of a wrong size");
  liveness_.on_heard(now);
  outbound_.proof().on_received();
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
      if ((message->select == kFinished && peer().tells_end()) ||
          (message->select == kShutDown && outbound_.resumes()))
        return on_finished(*message, now);
      if (message->select == kAborted) peer_end_.on_aborted();
      (void)spend_control(now);
      return;
    case Opcode::kKeepalive:
      if (!peer().said(Hello::kSendsKeepalives) || !budget_.takes_keepalive(receives_, now))
        (void)spend_control(now);
      return;
  }
}

void Stream::on_register(const ControlMessage& message, ae::TimePoint now) {
  using Offer = StreamSender::Offer;
  Offer offer = Offer::kNext;
  if (message.select == kWindowMark && peer().said(Hello::kMarksWindows)) offer = Offer::kMarked;
  if (message.select == kWindowAhead && peer().said(Hello::kTakesAhead)) offer = Offer::kAhead;
  const bool earned = outbound_.take_earned(offer);
  if (!earned && !spend_control(now)) return;
  if (message.length == 0) return fail("the peer offered a window of no bytes");
  if (message.length > max_peer_window_)
    return fail("the peer offered a window beyond max-peer-window", Excess::kWindow);
  if (message.address + message.length < message.address)
    return fail("the peer offered a window that wraps around its memory");
  const char* why =
      outbound_.on_offer(offer, earned, {message.address, message.length, message.key});
  if (why != nullptr) fail(why);
}

void Stream::on_finished(const ControlMessage& message, ae::TimePoint now) {
  const bool leaves = message.select == kFinished;
  if (!peer_end_.is_news(leaves) && !spend_control(now)) return;
  if (message.features != inbound_.line().total())
    return fail("the peer ended its stream at another byte than the last that arrived");
  peer_end_.on_finished(leaves);
  inbound_.end();
}

void Stream::on_feature(const ControlMessage& message, ae::TimePoint now) {
  if (outbound_.proof().on_answer(message.select)) return;
  if (!budget_.takes_probe(outbound_.proof().received(), receives_) && !spend_control(now)) return;
  // Only probes are answered. An answer that we did not expect differs from a probe only in the bit
  // kServerProbe; if it were answered, two peers might answer each other for ever.
  const bool servers = (message.select & Proof::kServerProbe) != 0;
  const bool question =
      role_ == Role::kServer ? !servers || !peer().is_aeconn() : servers && peer().is_aeconn();
  if (!question) return;
  if (!answers_.push(message.select))
    fail("the peer asks for features faster than it listens", Excess::kMessages);
}

// --- choosing control messages to send -----------------------------------------------------------

// Returns the control message at index `planned` of those that are due, in this order: a mark (of
// our change to a new window), offers of windows, answers to probes, the end of our stream, a probe
// and a keepalive. The variable `place` is the number of due messages that are still to be skipped.
std::optional<ControlMessage> Stream::next_control(ae::TimePoint,
                                                   std::uint32_t planned) const noexcept {
  if (outbound_.stopped()) return std::nullopt;
  const Proof& proof = outbound_.proof();
  const OurEnd& end = outbound_.end();
  ControlMessage message;
  if (end.aborted()) {
    if (!end.abort_is_due() || planned != 0) return std::nullopt;
    message.opcode = Opcode::kSetClientFeature;
    message.select = kAborted;
    return message;
  }
  std::uint32_t place = planned;
  // The mark tells the peer that we change to its new window, so it must precede the first byte in
  // that window.
  if (outbound_.mark_is_due()) {
    message.opcode = Opcode::kSetClientFeature;
    message.select = kWindowMark;
    if (place == 0) return message;
    --place;
  }
  const ReceiveWindowQueue& line = inbound_.line();
  for (std::size_t i = 0; i < line.unannounced(); ++i) {
    // The peer already has a receive window of ours to write into, so announcing the next one is
    // not urgent. Like data, it waits until the peer has shown that it has free receives.
    if (line.is_ahead(i) && proof.can_probe() && proof.few_receives(planned - place)) break;
    if (place-- != 0) continue;
    const WindowBuffer& window = line.to_announce(i);
    message.opcode = Opcode::kRegisterXferMemory;
    message.select = line.is_marked(i) ? kWindowMark : line.is_ahead(i) ? kWindowAhead : 0;
    message.address = window.address;
    message.length = window.length;
    message.key = window.key;
    return message;
  }
  if (place < answers_.count()) {
    message.opcode = Opcode::kGetServerFeature;
    message.select = answers_.at(place);
    return message;
  }
  place -= answers_.count();
  // The message that ends our stream follows the data, and like data waits for a proof that the
  // peer has free receives.
  if (end.finish_is_due() && !proof.few_receives(planned - place)) {
    message.opcode = Opcode::kSetClientFeature;
    message.select = end.says_leaves() ? kFinished : kShutDown;
    message.features = outbound_.peer_windows().total();
    if (place == 0) return message;
    --place;
  }
  return due_after_answers(planned, place);
}

// Returns the message at index `place` of a list: the probe if it is due, then the keepalive if it
// is due. A probe is due after a number of messages; if only the keepalive makes it due, the
// keepalive comes first.
std::optional<ControlMessage> Stream::due_after_answers(std::uint32_t planned,
                                                        std::uint32_t place) const noexcept {
  const Proof& proof = outbound_.proof();
  const bool keepalive = liveness_.keepalive_is_due();
  const bool probe_first = proof.probe_is_due(planned - place);
  const bool probes = probe_first || (keepalive && proof.probe_is_due(planned - place + 1));
  const std::uint32_t place_of_probe = probe_first ? 0 : 1;
  ControlMessage message;
  if (probes && place == place_of_probe) {
    message.opcode = Opcode::kGetServerFeature;
    message.select = proof.next_probe();
    return message;
  }
  if (keepalive && place == (probe_first ? 1 : 0)) {
    message.opcode = Opcode::kKeepalive;
    return message;
  }
  return std::nullopt;
}

void Stream::on_control_posted(const ControlMessage& message, ae::TimePoint now) {
  Proof& proof = outbound_.proof();
  proof.on_posted(now);
  switch (message.opcode) {
    case Opcode::kRegisterXferMemory:
      inbound_.announced(proof.sent(), now);
      AECONN_PROBE(window_offered, outbound_.connection(), message.length);
      break;
    case Opcode::kGetServerFeature:
      if (!answers_.pop(message.select)) proof.on_probe_posted(message.select);
      break;
    case Opcode::kKeepalive:
      liveness_.on_keepalive_posted();
      break;
    case Opcode::kSetClientFeature:
      outbound_.on_notice_posted(message.select);
      break;
  }
}

// --- periodic checks -----------------------------------------------------------------------------

void Stream::tick(ae::TimePoint now, bool loop_was_stopped) {
  if (outbound_.stopped()) return;
  const Proof& proof = outbound_.proof();
  const Liveness::Facts facts{.last_write_at = proof.last_post_at(),
                              .all_completed = proof.all_completed(),
                              .takes_keepalive = proof.takes_keepalive(),
                              .takes_last_keepalive = proof.takes_last_keepalive()};
  if (liveness_.tick(now, loop_was_stopped, facts) != Liveness::Peer::kAlive) {
    if (!outbound_.resumes()) fail(liveness_.dead());
    return;
  }
  inbound_.tick(now);
  outbound_.trim();
}

ae::TimePoint Stream::next_tick() const noexcept {
  if (outbound_.stopped()) return ae::TimePoint::max();
  return std::min(liveness_.next_tick(), inbound_.next_tick());
}

void Stream::check() const {
#ifndef NDEBUG
  inbound_.check();
  outbound_.check();
  budget_.check();
  assert(outbound_.stopped() == (failure_ != nullptr || peer_end_.closed()));
  assert(failure_ == nullptr || !peer_end_.takes_data());
#endif
}

}}}  // namespace conn::rdma
