// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/protocol/liveness.h"

#include "conn/rdma/protocol/flow_control.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// Returns the first multiple of `interval` after `now`, so that all connections with the same
// interval are due at the same time and share one wake-up of the loop. TimePoint::max() if
// `interval` is 0.
ae::TimePoint next_of(ae::Duration interval, ae::TimePoint now) noexcept {
  if (interval <= ae::Duration::zero()) return ae::TimePoint::max();
  return now - now.time_since_epoch() % interval + interval;
}

}  // namespace

Liveness::Liveness(const Config& config, ae::TimePoint now) noexcept
    : keepalive_(config.keepalive),
      keepalive_at_(next_of(config.keepalive, now)),
      heard_at_(now),
      completions_prove_(config.completions_prove) {
  if (keepalive_ > ae::Duration::zero()) keepalive_ = std::max(keepalive_, flow::kLeastKeepalive);
}

Liveness::Peer Liveness::tick(ae::TimePoint now, bool loop_was_stopped,
                              const Facts& facts) noexcept {
  if (loop_was_stopped) {
    heard_at_ = now;
    asked_at_ = {};
    waits_since_ = heard_in_vain_ ? now : ae::TimePoint{};
  }
  const Peer peer = watch(now, facts.all_completed);
  if (peer != Peer::kAlive) return found_ = peer;
  if (keepalive_ <= ae::Duration::zero() || now < keepalive_at_) return peer;
  keepalive_at_ = next_of(keepalive_, now);
  if (now - facts.last_write_at < keepalive_ / 2) return peer;
  const bool silent = completions_prove_ && promised_ != promised_.zero() &&
                      now - heard_at_ > promised_ + promised_ / 4;
  if (silent ? tells_silent_peer(now, facts) : facts.takes_keepalive)
    keepalive_due_ = true;
  else
    probe_due_ = true;
  return peer;
}

// Returns how long the peer may be silent before it counts as dead: three keepalive intervals, and
// a quarter of one for transit. Duration::max() if the peer promised no keepalives.
ae::Duration Liveness::silence_allowed() const noexcept {
  return promised_ != promised_.zero() ? 3 * promised_ + promised_ / 4 : ae::Duration::max();
}

// Returns whether to send a keepalive although the peer's software is silent. A stopped peer posts
// no new receives, so keepalives must not use up the receives that it has. But the peer's software
// may also run while its device carries out no requests. The peer can detect that only if it hears
// us: up to three of its keepalive intervals pass until it finds its keepalive unconfirmed, and it
// must then hear us for two of ours.
bool Liveness::tells_silent_peer(ae::TimePoint now, const Facts& facts) const noexcept {
  return facts.takes_last_keepalive && now - heard_at_ < 3 * promised_ + 3 * keepalive_;
}

void Liveness::on_heard_while_waiting(ae::TimePoint now) noexcept {
  // A peer that was silent for longer than silence_allowed() may have been stopped, and then it has
  // posted no receives. So hearing it now does not prove that our messages have found receives.
  if (now - heard_at_ <= silence_allowed())
    heard_in_vain_ = heard_in_vain_ || now - waits_since_ >= 2 * promised_;
  else if (!heard_in_vain_)
    waits_since_ = {};
}

Liveness::Peer Liveness::watch(ae::TimePoint now, bool all_completed) noexcept {
  if (promised_ == promised_.zero()) return Peer::kAlive;
  const ae::Duration silent = now - last_sign();
  // The peer may lack a receive for an earlier message. A probe (zero-length write) behind that
  // message may then never complete, which does not show that the peer is dead: only the failure of
  // our device's retries shows that, if their number is limited.
  const bool device_decides = completions_prove_ && device_gives_up() && !all_completed;
  if (silent > silence_allowed() && !device_decides) return Peer::kSilent;
  if (completions_prove_ && now >= next_look()) {
    asked_at_ = now;
    probe_due_ = true;
  }
  if (!completions_prove_ || all_completed) {
    waits_since_ = {};
    heard_in_vain_ = false;
  } else if (waits_since_ == ae::TimePoint{}) {
    waits_since_ = now;
  } else if (now - waits_since_ >= promised_) {
    // InfiniBand lets a device wait up to four times as long as its time-out says.
    const std::chrono::milliseconds retries(device_gives_up() ? 4 * std::int64_t{retries_ms_} : 0);
    if (heard_in_vain_ && now - waits_since_ > silence_allowed() + retries)
      return Peer::kUnconfirmed;
    probe_due_ = true;
  }
  return Peer::kAlive;
}

// Returns the time of the next probe of the peer's device: first one keepalive interval before the
// peer counts as dead, then once per interval. On iWARP, where such a probe proves nothing, the
// time at which a silent peer counts as dead. TimePoint::max() if the peer promised no keepalives.
ae::TimePoint Liveness::next_look() const noexcept {
  if (promised_ == promised_.zero()) return ae::TimePoint::max();
  if (!completions_prove_) return heard_at_ + silence_allowed();
  if (asked_at_ == ae::TimePoint{}) return last_sign() + silence_allowed() - promised_;
  // One clock tick is added, because watch() counts the peer as dead only if its silence exceeds
  // silence_allowed().
  return asked_at_ + promised_ + ae::Duration(1);
}

}}}  // namespace conn::rdma
