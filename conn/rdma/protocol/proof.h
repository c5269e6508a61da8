// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Counts the messages that we posted, and how many of them the peer has provably handled. A message
// (a control SEND or a WRITE_WITH_IMM) consumes one of the peer's posted receives. A peer does not
// announce when it reposts receives, so the unproven messages are counted against its receives. A
// peer that answers probes is probed before they run out; only one probe is outstanding at a time.

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
  /// Bit that is set in the probes of a server, so that its probes and its answers to the client's
  /// probes cannot be confused.
  static constexpr std::uint16_t kServerProbe = 0x8000;

  /// Starts with no message sent. `receives`: the number of receives that the peer is assumed to
  /// keep posted until it announces another number.
  Proof(Role role, std::uint32_t receives, bool completions_prove, ae::TimePoint now) noexcept
      : role_(role),
        completions_prove_(completions_prove),
        receives_(receives),
        last_post_at_(now) {}
  void set_completions_prove(bool prove) noexcept { completions_prove_ = prove; }
  /// Records what the peer's hello stated. `receives`: the number of receives that the peer keeps
  /// posted; no value if it announced none. `answers_probes`: whether it answers our probes.
  void on_hello(std::optional<std::uint32_t> receives, bool answers_probes) noexcept {
    if (receives) receives_ = flow::counted(*receives);
    answers_probes_ = answers_probes;
  }

  std::uint64_t receives() const noexcept { return receives_; }
  std::uint64_t sent() const noexcept { return sent_; }
  std::uint64_t unproven() const noexcept { return sent_ - proven_; }
  bool all_completed() const noexcept { return completed_ == sent_; }
  bool can_probe() const noexcept { return role_ == Role::kClient || answers_probes_; }
  /// Returns true if, after `planned` more messages, data must stop, because the peer's remaining
  /// receives are reserved for control messages.
  bool few_receives(std::uint32_t planned) const noexcept {
    return unproven() + planned + flow::reserve(receives_) >= receives_;
  }
  /// Returns true if data must wait for a proof that the peer has a receive. For a peer that can be
  /// probed, data waits until the answer comes. Any other peer gets one message at a time, the next
  /// when the previous one has found a receive: the device retries until there is one. (On iWARP,
  /// where a completion does not show that, it gets one message every flow::kPace.)
  bool lacks_receives(ae::TimePoint now, std::uint32_t planned) const noexcept {
    if (!few_receives(planned)) return false;
    if (can_probe() || planned != 0) return true;
    return completions_prove_ ? !all_completed() : now - last_post_at_ < flow::kPace;
  }
  /// Returns the time at which waiting data must be tried again although nothing arrives from the
  /// peer; no value if no such time is needed.
  std::optional<ae::TimePoint> retry_at() const noexcept {
    if (can_probe() || completions_prove_ || !few_receives(0)) return std::nullopt;
    return last_post_at_ + flow::kPace;
  }
  /// Returns true if the message after `planned` control messages exceeds the receives that are
  /// proven and the peer cannot be probed. The completion of that message must be requested, and
  /// the next message waits for it.
  bool is_exceeded(std::uint32_t planned = 0) const noexcept {
    return few_receives(planned) && !can_probe();
  }
  ae::TimePoint last_post_at() const noexcept { return last_post_at_; }
  bool takes_keepalive() const noexcept { return unproven() < flow::keepalive_below(receives_); }
  bool takes_last_keepalive() const noexcept {
    return unproven() < flow::last_keepalive_below(receives_);
  }

  /// Returns true if few_receives() and probe_is_due() are false for the next message. (A probe is
  /// due before the receives are few: flow::fits().)
  bool has_plenty() const noexcept { return unproven() < flow::probe_at(receives_); }

  // --- recording messages ------------------------------------------------------------------------
  void on_posted(ae::TimePoint now) noexcept {
    ++sent_;
    last_post_at_ = now;
  }
  /// Call for each message from the peer. If the peer cannot be probed, the message itself is a
  /// proof: the peer's software is running, so it has handled what came before.
  void on_received() noexcept {
    ++received_;
    if (!can_probe()) prove(sent_);
  }
  std::uint64_t received() const noexcept { return received_; }
  void on_completed(std::uint32_t count) noexcept { completed_ += count; }
  /// Records that the peer has handled our first `messages` messages.
  void prove(std::uint64_t messages) noexcept { proven_ = std::max(proven_, messages); }
  /// Records that the message that we posted last filled the peer's current window to its last
  /// byte.
  void on_full() noexcept { sent_at_full_ = sent_; }
  /// Records that the peer has consumed its window that we filled last, and so has handled our
  /// messages up to the one that filled it.
  void prove_full() noexcept { prove(sent_at_full_); }

  // --- probes ------------------------------------------------------------------------------------
  /// Returns true if a probe must be sent to the peer after `planned` more messages.
  bool probe_is_due(std::uint32_t planned) const noexcept {
    return !outstanding_ && can_probe() && unproven() + planned >= flow::probe_at(receives_);
  }
  std::uint16_t next_probe() const noexcept {
    const auto select = static_cast<std::uint16_t>((select_ + 1) & ~kServerProbe);
    return role_ == Role::kServer ? static_cast<std::uint16_t>(select | kServerProbe) : select;
  }
  /// Records that the message posted last was a probe, with this value in its `select` field.
  void on_probe_posted(std::uint16_t select) noexcept {
    outstanding_ = true;
    select_ = select;
    covers_ = sent_;
  }
  /// Returns true if a message with this `select` answers our outstanding probe, and records that
  /// all messages before that probe are proven.
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
  std::uint64_t sent_ = 0;  // number of messages that we posted
  // Number of our messages that the peer's software has provably handled.
  std::uint64_t proven_ = 0;
  // Number of our messages whose completion our device has reported.
  std::uint64_t completed_ = 0;
  std::uint64_t sent_at_full_ = 0;
  std::uint64_t received_ = 0;  // number of messages that arrived from the peer
  ae::TimePoint last_post_at_;
  // How many of our messages, counted from the first, are proven when the peer answers our last
  // probe.
  std::uint64_t covers_ = 0;
};

}}}  // namespace conn::rdma
