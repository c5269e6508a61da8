// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The messages that we posted, and which of them the peer has provably handled. Each message (a
// control SEND or a WRITE_WITH_IMM) consumes one of the peer's posted receives. Reposting is not
// announced, so the messages that are not proven are counted against the peer's receives. A peer
// that answers probes is asked in time; one probe is outstanding at a time.

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
  /// Our probes as a server carry this bit, so that answers and probes cannot be confused.
  static constexpr std::uint16_t kServerProbe = 0x8000;

  /// `receives`: what a peer keeps posted that announces none.
  Proof(Role role, std::uint32_t receives, bool completions_prove, ae::TimePoint now) noexcept
      : role_(role),
        completions_prove_(completions_prove),
        receives_(receives),
        last_post_at_(now) {}
  void set_completions_prove(bool prove) noexcept { completions_prove_ = prove; }
  /// What the peer announced: its receives, unless it keeps as many as the other peers.
  void on_hello(std::optional<std::uint32_t> receives, bool answers_probes) noexcept {
    if (receives) receives_ = flow::counted(*receives);
    answers_probes_ = answers_probes;
  }

  std::uint64_t receives() const noexcept { return receives_; }
  std::uint64_t sent() const noexcept { return sent_; }
  std::uint64_t unproven() const noexcept { return sent_ - proven_; }
  bool all_completed() const noexcept { return completed_ == sent_; }
  bool can_probe() const noexcept { return role_ == Role::kClient || answers_probes_; }
  /// After `planned` more messages, data must stop: the other receives are for control messages.
  bool few_receives(std::uint32_t planned) const noexcept {
    return unproven() + planned + flow::reserve(receives_) >= receives_;
  }
  /// Data waits for a proof. A peer that can be probed is waited for. Any other peer gets one
  /// message at a time, each when the one before it has found a receive: if it finds none, the
  /// device retries until there is one.
  bool starved(ae::TimePoint now, std::uint32_t planned) const noexcept {
    if (!few_receives(planned)) return false;
    if (can_probe() || planned != 0) return true;
    return completions_prove_ ? !all_completed() : now - last_post_at_ < flow::kPace;
  }
  /// When data that waits must be tried again although nothing arrives.
  std::optional<ae::TimePoint> retry_at() const noexcept {
    if (can_probe() || completions_prove_ || !few_receives(0)) return std::nullopt;
    return last_post_at_ + flow::kPace;
  }
  /// The message after `planned` control messages exceeds the receives that are proven: its
  /// completion must be requested, and the message after it waits for that completion.
  bool is_exceeded(std::uint32_t planned = 0) const noexcept {
    return few_receives(planned) && !can_probe();
  }
  ae::TimePoint last_post_at() const noexcept { return last_post_at_; }
  bool takes_keepalive() const noexcept { return unproven() < flow::keepalive_below(receives_); }

  // --- what happens ------------------------------------------------------------------------------
  void on_posted(ae::TimePoint now) noexcept {
    ++sent_;
    last_post_at_ = now;
  }
  /// A message of the peer. If it cannot be probed: its software is running, so it has handled what
  /// came before.
  void on_received() noexcept {
    ++received_;
    if (!can_probe()) prove(sent_);
  }
  std::uint64_t received() const noexcept { return received_; }
  void on_completed(std::uint32_t count) noexcept { completed_ += count; }
  /// The peer has handled the first `messages`.
  void prove(std::uint64_t messages) noexcept { proven_ = std::max(proven_, messages); }
  /// The last message filled the peer's window.
  void on_full() noexcept { sent_at_full_ = sent_; }
  /// The peer has consumed that window.
  void prove_full() noexcept { prove(sent_at_full_); }

  // --- probes ------------------------------------------------------------------------------------
  /// A probe is due after `planned` more messages.
  bool probe_is_due(std::uint32_t planned) const noexcept {
    return !outstanding_ && can_probe() && unproven() + planned >= flow::probe_at(receives_);
  }
  std::uint16_t next_probe() const noexcept {
    const auto select = static_cast<std::uint16_t>((select_ + 1) & ~kServerProbe);
    return role_ == Role::kServer ? static_cast<std::uint16_t>(select | kServerProbe) : select;
  }
  /// The probe was posted last.
  void on_probe_posted(std::uint16_t select) noexcept {
    outstanding_ = true;
    select_ = select;
    covers_ = sent_;
  }
  /// True: this is the answer to our probe, which proves all messages before it.
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
  bool outstanding_ = false;     // a probe, that is not answered yet
  std::uint16_t select_ = 0;     // of the last probe
  std::uint64_t receives_;       // of the peer
  std::uint64_t sent_ = 0;       // messages posted
  std::uint64_t proven_ = 0;     // of these, proven handled by the peer's software
  std::uint64_t completed_ = 0;  // of sent_, completed
  std::uint64_t sent_at_full_ = 0;
  std::uint64_t received_ = 0;  // messages of the peer
  ae::TimePoint last_post_at_;
  std::uint64_t covers_ = 0;  // messages that the answer proves
};

}}}  // namespace conn::rdma
