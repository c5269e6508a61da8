// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Whether the peer is there. Our keepalives, for its software; and its silence, for ours.
//
// A peer whose software is silent may be stopped or slow. It is waited for as long as its device
// answers, as a kernel answers TCP keepalives for a stopped program. So silence only makes us probe
// the device, with a zero-length write: that is confirmed, or fails when the device's retries are
// used up, or is not confirmed in time. On iWARP a confirmation proves nothing, and silence itself
// counts.

#include <algorithm>
#include <chrono>

#include "ae/abi.h"
#include "ae/time.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class Liveness {
 public:
  struct Config {
    ae::Duration keepalive{};       ///< interval of ours; 0: none
    bool completions_prove = true;  ///< as in StreamConfig
    bool device_gives_up = true;    ///< as in StreamConfig
  };
  Liveness(const Config& config, ae::TimePoint now) noexcept;
  void set_completions_prove(bool prove) noexcept { config_.completions_prove = prove; }
  /// The peer promises keepalives at this interval.
  void set_promise(ae::Duration interval) noexcept { promised_ = interval; }

  // --- signs of life -----------------------------------------------------------------------------
  /// From now on its silence counts.
  void on_open(ae::TimePoint now) noexcept {
    if (!heard_) heard_at_ = now;
  }
  void on_heard(ae::TimePoint now) noexcept {
    heard_ = true;
    heard_at_ = now;
    asked_at_ = {};
  }
  bool heard() const noexcept { return heard_; }
  /// Its device has confirmed a request of ours. Where that proves more than that the request left
  /// (not so on iWARP), the device and the path to it work, whatever the peer's software does.
  void on_confirmed(ae::TimePoint now) noexcept {
    if (!config_.completions_prove) return;
    confirmed_at_ = now;
    asked_at_ = {};
  }

  // --- time --------------------------------------------------------------------------------------
  struct Facts {
    ae::TimePoint last_write_at{};
    bool all_completed = true;     ///< of our messages
    bool takes_keepalive = false;  ///< a receive for it is proven
  };
  /// As Stream::tick(). False: the peer counts as dead.
  [[nodiscard]] bool tick(ae::TimePoint now, bool loop_was_stopped, const Facts& facts) noexcept;
  ae::TimePoint next_tick() const noexcept { return std::min(keepalive_at_, next_look()); }

  // --- what is due -------------------------------------------------------------------------------
  bool keepalive_is_due() const noexcept { return keepalive_due_; }
  void on_keepalive_posted() noexcept { keepalive_due_ = false; }
  /// A keepalive is due but the peer may have no receive for it, or is silent: prove the path with
  /// a zero-length write instead, which consumes no receive and which the peer's device confirms by
  /// itself.
  bool wants_probe() const noexcept { return probe_due_; }
  /// The path may have failed: requests a proof of it now.
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
  ae::Duration promised_{};  // 0: the peer promised no keepalives
  ae::TimePoint keepalive_at_;
  ae::TimePoint heard_at_;        // last message from the peer's software
  ae::TimePoint confirmed_at_{};  // last confirmation by its device of a request of ours
  ae::TimePoint asked_at_{};      // when its device was probed since the last of both; zero: not
  bool heard_ = false;
  bool keepalive_due_ = false, probe_due_ = false;
};

}}}  // namespace conn::rdma
