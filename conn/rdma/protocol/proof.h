// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Counts the messages that we posted, and how many of them the peer has provably handled. Each
// message (a control SEND or a WRITE_WITH_IMM) consumes one of the peer's posted receives. The peer
// does not announce when it reposts receives; therefore every message without a proof counts as one
// used receive. A peer that answers probes (control messages) is probed before its receives run
// out; only one probe is outstanding at a time.

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <optional>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/protocol/flow_control.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

enum class Role : std::uint8_t { kClient, kServer };

class Proof {
 public:
  /// Bit of the `select` field that is set in the probes of a server, so that they cannot be
  /// confused with its answers to the client's probes.
  static constexpr std::uint16_t kServerProbe = 0x8000;

  /// Creates the counters, with no message sent. `receives`: the number of receives that the peer
  /// is assumed to keep posted until it announces another number. `completions_prove`: true if the
  /// completion of a message proves that one of the peer's receives took it; false on iWARP.
  Proof(Role role, std::uint32_t receives, bool completions_prove, ae::TimePoint now) noexcept
      : role_(role),
        completions_prove_(completions_prove),
        receives_(receives),
        probe_at_(flow::probe_at(receives)),
        last_post_at_(now) {}
  void set_completions_prove(bool prove) noexcept { completions_prove_ = prove; }
  /// Records what the peer has announced when the connection was set up. `receives`: the number of
  /// receives that the peer keeps posted; no value if it announced none. `answers_probes`: true if
  /// the peer answers our probes.
  void on_hello(std::optional<std::uint32_t> receives, bool answers_probes) noexcept {
    if (receives) receives_ = flow::counted(*receives);
    probe_at_ = flow::probe_at(receives_);
    answers_probes_ = answers_probes;
  }

  std::uint64_t receives() const noexcept { return receives_; }
  std::uint64_t sent() const noexcept { return sent_; }
  std::uint64_t unproven() const noexcept { return sent_ - proven_; }
  bool all_completed() const noexcept { return completed_ == sent_; }
  bool can_probe() const noexcept { return role_ == Role::kClient || answers_probes_; }
  /// Returns true if data must stop after `planned` more messages, because the peer's remaining
  /// receives are reserved for control messages.
  bool few_receives(std::uint32_t planned) const noexcept {
    return unproven() + planned + flow::reserve(receives_) >= receives_;
  }
  /// Returns true if data must wait for a proof that the peer has a free posted receive. If the
  /// peer can be probed, data waits for the answer to the probe. Otherwise one message is sent at a
  /// time: the device retries it until it finds a receive, and the next one follows its completion.
  /// (On iWARP a completion does not show this, so one message is sent every flow::kPace.)
  bool lacks_receives(ae::TimePoint now, std::uint32_t planned) const noexcept {
    if (!few_receives(planned)) return false;
    if (can_probe() || planned != 0) return true;
    return completions_prove_ ? !all_completed() : now - last_post_at_ < flow::kPace;
  }
  /// Returns the time at which sending must be tried again even if no message or completion
  /// arrives; no value if that is not needed.
  std::optional<ae::TimePoint> retry_at() const noexcept {
    if (can_probe() || completions_prove_ || !few_receives(0)) return std::nullopt;
    return last_post_at_ + flow::kPace;
  }
  /// Returns true if the peer answers no probes and the message after `planned` control messages
  /// might find no free receive. The completion of that message must be requested, because the next
  /// message waits for it.
  bool is_exceeded(std::uint32_t planned = 0) const noexcept {
    return few_receives(planned) && !can_probe();
  }
  ae::TimePoint last_post_at() const noexcept { return last_post_at_; }
  bool takes_keepalive() const noexcept { return unproven() < flow::keepalive_below(receives_); }
  bool takes_last_keepalive() const noexcept {
    return unproven() < flow::last_keepalive_below(receives_);
  }

  /// Returns true if the peer has so many free receives that few_receives() and probe_is_due() are
  /// false for the next message. (A probe is due before the receives are few: flow::fits().)
  bool has_plenty() const noexcept { return unproven() < probe_at_; }

  // --- counting messages -------------------------------------------------------------------------
  void on_posted(ae::TimePoint now) noexcept {
    ++sent_;
    last_post_at_ = now;
  }
  /// Counts a message that arrives from the peer. If the peer cannot be probed, its message counts
  /// as a proof that it has handled all our messages, because it shows that the peer's software is
  /// running.
  void on_received() noexcept {
    ++received_;
    if (!can_probe()) prove(sent_);
  }
  std::uint64_t received() const noexcept { return received_; }
  void on_completed(std::uint32_t count) noexcept { completed_ += count; }
  /// Records that the peer has handled the first `messages` messages that we sent.
  void prove(std::uint64_t messages) noexcept { proven_ = std::max(proven_, messages); }
  /// Records that the message posted last filled the peer's current receive window to its last
  /// byte.
  void on_full() noexcept { sent_at_full_ = sent_; }
  /// Records that the peer has noticed that we filled its receive window. It has thus handled all
  /// our messages up to the one that filled the window.
  void prove_full() noexcept { prove(sent_at_full_); }

  // --- sending probes and handling their answers -------------------------------------------------
  /// Returns true if a probe must be sent to the peer after `planned` more messages.
  bool probe_is_due(std::uint32_t planned) const noexcept {
    return !outstanding_ && can_probe() && unproven() + planned >= probe_at_;
  }
  std::uint16_t next_probe() const noexcept {
    const auto select = static_cast<std::uint16_t>((select_ + 1) & ~kServerProbe);
    return role_ == Role::kServer ? static_cast<std::uint16_t>(select | kServerProbe) : select;
  }
  /// Records that the message posted last was a probe with `select` in its field of that name.
  void on_probe_posted(std::uint16_t select) noexcept {
    outstanding_ = true;
    select_ = select;
    covers_ = sent_;
  }
  /// Returns true if a message with this `select` field answers our outstanding probe. Then also
  /// records that the peer has handled all messages up to that probe.
  bool on_answer(std::uint16_t select) noexcept {
    if (!outstanding_ || select != select_) return false;
    outstanding_ = false;
    prove(covers_);
    return true;
  }

  void check() const {
    assert(proven_ <= sent_ && completed_ <= sent_ && sent_at_full_ <= sent_ && covers_ <= sent_);
  }

 private:
  Role role_;
  bool answers_probes_ = false;
  bool completions_prove_;
  bool outstanding_ = false;  // true while the peer has not answered our last probe
  // `select` field of the last probe that we posted; 0 before the first probe.
  std::uint16_t select_ = 0;
  std::uint64_t receives_;  // number of receives that the peer is assumed to keep posted
  std::uint64_t probe_at_;  // number of unproven messages at which a probe is due
  std::uint64_t sent_ = 0;  // number of messages that we posted
  // Number of our messages that the peer's software has provably handled.
  std::uint64_t proven_ = 0;
  // Number of our messages whose completion our device has reported.
  std::uint64_t completed_ = 0;
  std::uint64_t sent_at_full_ = 0;
  std::uint64_t received_ = 0;  // number of messages that arrived from the peer
  ae::TimePoint last_post_at_;
  // Number of messages posted up to and including our last probe, all of which the peer has handled
  // when it answers that probe.
  std::uint64_t covers_ = 0;
};

}}}  // namespace conn::rdma
