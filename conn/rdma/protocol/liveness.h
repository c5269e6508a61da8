// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Decides whether the peer is alive. Sends keepalives, so that the peer's software hears from ours,
// and watches how long the peer's software has been silent.
//
// A peer whose software is silent may only be stopped or slow. We wait for it as long as its device
// answers, as TCP keepalives are answered by the kernel of a stopped program. So silence only makes
// us probe the device, with a zero-length write. That write completes; or it fails, when the
// device's retries are used up; or it does not complete in time. On iWARP a completion proves
// nothing, so there the silence itself decides.
//
// A device may also stop carrying out our requests and report nothing (seen with soft-RoCE). If the
// peer was heard for two of its intervals after we sent a message, its software has posted receives
// since; if that message is then not confirmed for longer than the device's retries take, the path
// counts as dead. The end with such a device needs keepalives of the peer to decide this, so the
// peer sends a few more of them although it hears nothing itself.

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
    kSilent,       ///< neither its software nor its device was heard for three keepalive intervals
    kUnconfirmed,  ///< it is heard, but its device confirms nothing of what we send
  };
  static constexpr const char* kSilent = "the peer has been silent for three keepalive intervals";
  static constexpr const char* kUnconfirmed =
      "the peer is heard, but its device confirms nothing of what is sent to it";

  Liveness(const Config& config, ae::TimePoint now) noexcept;
  /// Sets Config::completions_prove, and how long our device repeats a request before it fails if
  /// the peer's device does not answer (kForEver: perhaps without end; zero before the call).
  void set_device(bool completions_prove, std::chrono::milliseconds retries) noexcept {
    completions_prove_ = completions_prove;
    retries_ms_ = static_cast<std::uint32_t>(std::min(retries, kForEver).count());
  }
  /// Records that the peer promised to send keepalives at this interval.
  void set_promise(ae::Duration interval) noexcept { promised_ = interval; }

  // --- signs that the peer is alive --------------------------------------------------------------
  /// Call when the connection is established: the time since the peer was last heard is counted
  /// from `now`, unless the peer has been heard already.
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
  /// Records that the peer's device has confirmed a request of ours. This shows that the device and
  /// the path to it work, whatever the peer's software does; not on iWARP, where a completion only
  /// shows that the request left.
  void on_confirmed(ae::TimePoint now) noexcept {
    if (!completions_prove_) return;
    confirmed_at_ = now;
    asked_at_ = waits_since_ = {};
    heard_in_vain_ = false;
  }

  // --- time-outs and ticks -----------------------------------------------------------------------
  struct Facts {
    ae::TimePoint last_write_at{};
    /// True if the device has reported the completion of every message that we posted.
    bool all_completed = true;
    bool takes_keepalive = false;  ///< true if the peer provably has a receive for a keepalive
    /// True if the peer provably has a receive for a keepalive, counting those for control
    /// messages.
    bool takes_last_keepalive = false;
  };
  /// Notes which keepalive or probe is due at time `now`. `loop_was_stopped`: this call comes much
  /// later than planned, so that the peer's silence proves nothing. A peer that is not alive counts
  /// as dead.
  Peer tick(ae::TimePoint now, bool loop_was_stopped, const Facts& facts) noexcept;
  /// Says why the peer counts as dead since a tick(), for example kSilent; null if it does not.
  const char* dead() const noexcept {
    if (found_ == Peer::kAlive) return nullptr;
    return found_ == Peer::kSilent ? kSilent : kUnconfirmed;
  }
  ae::TimePoint next_tick() const noexcept { return std::min(keepalive_at_, next_look()); }

  // --- keepalives and probes that are due --------------------------------------------------------
  /// Returns true if neither a keepalive nor a probe of the peer's device is due.
  bool has_nothing_due() const noexcept { return !keepalive_due_ && !probe_due_; }
  bool keepalive_is_due() const noexcept { return keepalive_due_; }
  void on_keepalive_posted() noexcept { keepalive_due_ = false; }
  /// Returns true if a zero-length write is due. It proves the path in place of a keepalive, when
  /// the peer may have no receive for one, or is silent: it consumes no receive, and the peer's
  /// device confirms it without the peer's software.
  bool wants_probe() const noexcept { return probe_due_; }
  /// Call when the network path to the peer may have failed. Makes a probe of the peer's device due
  /// now, if a completion proves something.
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

  ae::Duration keepalive_;  // Config::keepalive
  // Interval at which the peer promised to send keepalives; 0: the peer promised none.
  ae::Duration promised_{};
  ae::TimePoint keepalive_at_;
  // Time from which the silence of the peer's software counts: when its last message arrived, or
  // later if our own loop was stopped after that.
  ae::TimePoint heard_at_;
  // Time at which the peer's device last confirmed a request of ours; zero: never.
  ae::TimePoint confirmed_at_{};
  // Time at which the peer's device was last probed; zero: it was not probed since its last
  // confirmation and the peer's last message.
  ae::TimePoint asked_at_{};
  // Time of the first tick since the last confirmation at which a message of ours was not
  // completed; zero: there was none.
  ae::TimePoint waits_since_{};
  std::uint32_t retries_ms_ = 0;
  bool completions_prove_;     // Config::completions_prove
  Peer found_ = Peer::kAlive;  // the last that tick() found which was not kAlive
  bool heard_ = false;
  bool keepalive_due_ = false, probe_due_ = false;
  // True if the peer was heard for so long after a message of ours that it must have had a receive
  // for it, and the message is not confirmed. Only if waits_since_ is not zero.
  bool heard_in_vain_ = false;
};

}}}  // namespace conn::rdma
