// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Decides whether the peer is alive. Says when a keepalive is due, so that the peer's software
// hears from ours, and measures how long the peer's software has been silent.
//
// A peer whose software is silent may only be stopped or slow. We wait for such a peer as long as
// its device answers. (TCP does the same: the kernel answers keepalives for a stopped program.)
// Silence therefore only makes us probe the peer's device, with a zero-length write. If that write
// fails (our device's retries are used up), or does not complete in time, the peer counts as dead.
// On iWARP a completion proves nothing, so there silence alone decides.
//
// Our device may also stop carrying out our requests without reporting a failure (seen with
// soft-RoCE). If we heard the peer for two of its keepalive intervals after we sent a message, its
// software has posted receives since. If our device has still not confirmed that message after the
// time that its retries take, the path counts as dead. To detect this, an end must hear keepalives
// of its peer; therefore each end sends a few more keepalives even if it hears nothing itself.

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "ae/abi.h"
#include "ae/time.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class Liveness {
 public:
  struct Config {
    ae::Duration keepalive{};  ///< interval at which we send keepalives; 0: we send none
    /// True if the completion of a request proves that it reached the peer's device; false on
    /// iWARP, where it only proves that the request left ours (StreamConfig::completions_prove).
    bool completions_prove = true;
  };
  static constexpr std::chrono::milliseconds kForEver{0xffffffff};
  /// What is known of the peer.
  enum class Peer : std::uint8_t {
    kAlive,
    /// Neither the peer's software nor its device gave a sign for three keepalive intervals.
    kSilent,
    kUnconfirmed,  ///< the peer's messages arrive, but nothing that we send is confirmed
  };
  static constexpr const char* kSilent = "the peer has been silent for three keepalive intervals";
  static constexpr const char* kUnconfirmed =
      "the peer is heard, but its device confirms nothing of what is sent to it";

  Liveness(const Config& config, ae::TimePoint now) noexcept;
  /// Returns the interval at which we send keepalives; 0: we send none.
  ae::Duration keepalive() const noexcept { return keepalive_; }
  /// Sets two properties of our device: `completions_prove` as in Config, and `retries`, the time
  /// for which our device repeats a request that the peer's device does not answer, before the
  /// request fails. kForEver: the device may never give up. Before the call this time is zero.
  void set_device(bool completions_prove, std::chrono::milliseconds retries) noexcept {
    completions_prove_ = completions_prove;
    retries_ms_ = static_cast<std::uint32_t>(std::min(retries, kForEver).count());
  }
  /// Records that the peer promised to send keepalives at this interval.
  void set_promise(ae::Duration interval) noexcept { promised_ = interval; }

  // --- signs that the peer is alive --------------------------------------------------------------
  /// Records that the connection is established. Measures the peer's silence from `now`, unless a
  /// message of the peer has arrived already.
  void on_open(ae::TimePoint now) noexcept {
    if (!heard_) heard_at_ = now;
  }
  void on_heard(ae::TimePoint now) noexcept {
    if (waits_since_ != ae::TimePoint{}) [[unlikely]]
      on_heard_while_waiting(now);
    heard_ = true;
    heard_at_ = now;
    asked_at_ = {};
  }
  bool heard() const noexcept { return heard_; }
  /// Records that a request of ours has completed. Except on iWARP, the completion shows that the
  /// peer's device and the path to it work, whatever the peer's software does. (On iWARP it only
  /// shows that the request has left our device, and this call does nothing.)
  void on_confirmed(ae::TimePoint now) noexcept {
    if (!completions_prove_) return;
    confirmed_at_ = now;
    asked_at_ = waits_since_ = {};
    heard_in_vain_ = false;
  }

  // --- periodic checks ---------------------------------------------------------------------------
  struct Facts {
    ae::TimePoint last_write_at{};
    /// True if the device has reported the completion of every message that we posted.
    bool all_completed = true;
    /// True if the peer certainly has a free posted receive for a keepalive.
    bool takes_keepalive = false;
    /// True if the peer certainly has a free posted receive for a keepalive, counting also those
    /// that are reserved for control messages.
    bool takes_last_keepalive = false;
  };
  /// Determines whether a keepalive or a probe is due at time `now`, and returns the state of the
  /// peer. A peer that is not kAlive counts as dead. `loop_was_stopped`: this call comes much later
  /// than planned, so the peer's silence up to now proves nothing.
  Peer tick(ae::TimePoint now, bool loop_was_stopped, const Facts& facts) noexcept;
  /// Returns a text that says why tick() found the peer dead, for example kSilent; null if it did
  /// not.
  const char* dead() const noexcept {
    if (found_ == Peer::kAlive) return nullptr;
    return found_ == Peer::kSilent ? kSilent : kUnconfirmed;
  }
  ae::TimePoint next_tick() const noexcept { return std::min(keepalive_at_, next_look()); }

  // --- keepalives and probes that are due --------------------------------------------------------
  /// Returns true if neither a keepalive nor a probe of the peer's device is due.
  bool has_nothing_due() const noexcept { return !(keepalive_due_ | probe_due_); }
  bool keepalive_is_due() const noexcept { return keepalive_due_; }
  void on_keepalive_posted() noexcept { keepalive_due_ = false; }
  /// Returns true if a zero-length write is due as a probe of the peer's device. It is sent in
  /// place of a keepalive if the peer is silent or may have no free receive: such a write consumes
  /// no receive, and the peer's device confirms it without the peer's software.
  bool wants_probe() const noexcept { return probe_due_; }
  /// Call when the network path to the peer may have failed. Makes a probe of the peer's device due
  /// now, except on iWARP, where its completion would prove nothing.
  void ask_path() noexcept {
    if (completions_prove_) probe_due_ = true;
  }
  void on_probe_posted() noexcept { probe_due_ = false; }

 private:
  Peer watch(ae::TimePoint now, bool all_completed) noexcept;
  ae::Duration silence_allowed() const noexcept;
  void on_heard_while_waiting(ae::TimePoint now) noexcept;
  bool tells_silent_peer(ae::TimePoint now, const Facts& facts) const noexcept;
  bool device_gives_up() const noexcept { return retries_ms_ != kForEver.count(); }
  ae::TimePoint last_sign() const noexcept { return std::max(heard_at_, confirmed_at_); }
  ae::TimePoint next_look() const noexcept;

  ae::Duration keepalive_;  // interval at which we send keepalives; 0: we send none
  // Interval at which the peer has promised to send keepalives; 0: it promised none.
  ae::Duration promised_{};
  ae::TimePoint keepalive_at_;
  // Start of the current silence of the peer's software: the time at which its last message
  // arrived, or a later time if our own loop was stopped after that.
  ae::TimePoint heard_at_;
  // Time at which the peer's device last confirmed a request of ours; zero: never.
  ae::TimePoint confirmed_at_{};
  // Time of the last probe of the peer's device; zero: none was sent since the last sign of life of
  // the peer or its device.
  ae::TimePoint asked_at_{};
  // Time at which tick() first found a message of ours without a completion, since the last
  // confirmation by the peer's device; zero: all messages were completed.
  ae::TimePoint waits_since_{};
  std::uint32_t retries_ms_ = 0;
  bool completions_prove_;     // false on iWARP, where completions prove nothing
  Peer found_ = Peer::kAlive;  // the last result of tick() other than kAlive
  bool heard_ = false;
  bool keepalive_due_ = false, probe_due_ = false;
  // True if our device has not confirmed a message of ours although the peer must have had a
  // receive for it: its software was heard long enough after that message. False while all messages
  // are confirmed (waits_since_ is zero).
  bool heard_in_vain_ = false;
};

}}}  // namespace conn::rdma
