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

#include <algorithm>
#include <chrono>

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
    /// True if our device fails a request after some retries when the peer's device does not
    /// answer; false if it may retry for ever (StreamConfig::device_gives_up).
    bool device_gives_up = true;
  };
  Liveness(const Config& config, ae::TimePoint now) noexcept;
  void set_completions_prove(bool prove) noexcept { config_.completions_prove = prove; }
  /// Records that the peer promised to send keepalives at this interval.
  void set_promise(ae::Duration interval) noexcept { promised_ = interval; }

  // --- signs that the peer is alive --------------------------------------------------------------
  /// Call when the connection is established: the peer's silence counts from now on.
  void on_open(ae::TimePoint now) noexcept {
    if (!heard_) heard_at_ = now;
  }
  void on_heard(ae::TimePoint now) noexcept {
    heard_ = true;
    heard_at_ = now;
    asked_at_ = {};
  }
  bool heard() const noexcept { return heard_; }
  /// Records that the peer's device has confirmed a request of ours. This shows that the device and
  /// the path to it work, whatever the peer's software does; not on iWARP, where a completion only
  /// shows that the request left.
  void on_confirmed(ae::TimePoint now) noexcept {
    if (!config_.completions_prove) return;
    confirmed_at_ = now;
    asked_at_ = {};
  }

  // --- time-outs and ticks -----------------------------------------------------------------------
  struct Facts {
    ae::TimePoint last_write_at{};
    /// True if the device has reported the completion of every message that we posted.
    bool all_completed = true;
    bool takes_keepalive = false;  ///< true if the peer provably has a receive for a keepalive
  };
  /// Notes which keepalive or probe is due at time `now`. `loop_was_stopped`: this call comes much
  /// later than planned, so that the peer's silence proves nothing. Returns false if the peer
  /// counts as dead.
  [[nodiscard]] bool tick(ae::TimePoint now, bool loop_was_stopped, const Facts& facts) noexcept;
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
    if (config_.completions_prove) probe_due_ = true;
  }
  void on_probe_posted() noexcept { probe_due_ = false; }

 private:
  bool watch_silence(ae::TimePoint now, bool all_completed) noexcept;
  ae::Duration silence_allowed() const noexcept;
  ae::TimePoint last_sign() const noexcept { return std::max(heard_at_, confirmed_at_); }
  ae::TimePoint next_look() const noexcept;

  Config config_;
  // Interval at which the peer promised to send keepalives; 0: the peer promised none.
  ae::Duration promised_{};
  ae::TimePoint keepalive_at_;
  // Time from which the silence of the peer's software counts: when its last message arrived, or
  // later if our own loop stood still after that.
  ae::TimePoint heard_at_;
  // Time at which the peer's device last confirmed a request of ours; zero: never.
  ae::TimePoint confirmed_at_{};
  // Time at which the peer's device was last probed; zero: it was not probed since its last
  // confirmation and the peer's last message.
  ae::TimePoint asked_at_{};
  bool heard_ = false;
  bool keepalive_due_ = false, probe_due_ = false;
};

}}}  // namespace conn::rdma
