// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which control messages a peer may send: those that something we did earned it, keepalives and
// probes at their pace, and some more from a budget, so that a flood of them ends the connection
// instead of using up the loop's time (conn/rdma/protocol/flow_control.h).

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <utility>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/protocol/flow_control.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class ControlBudget {
 public:
  /// `rate` messages in a second, and `burst` at once.
  ControlBudget(std::uint32_t rate, std::uint32_t burst, ae::TimePoint now) noexcept
      : rate_(rate), burst_(burst), tokens_(burst), tokens_at_(now) {}

  /// Pays for one message. False: the peer floods us.
  [[nodiscard]] bool spend(ae::TimePoint now) noexcept {
    // The loop's time may be older than this object: it does not advance while a handler runs.
    const std::chrono::duration<double> elapsed = std::max(now - tokens_at_, ae::Duration::zero());
    tokens_at_ = std::max(now, tokens_at_);
    tokens_ = std::min<double>(burst_, tokens_ + elapsed.count() * rate_);
    if (tokens_ < 1) return false;
    tokens_ -= 1;
    return true;
  }
  /// Whether an aeconn peer may send a keepalive: at its interval, or delayed behind a stopped
  /// loop. `told`: the number of our receives that we announced; 0: none.
  bool takes_keepalive(std::uint32_t told, ae::TimePoint now) noexcept {
    const std::uint32_t at_once = std::max(told, flow::kPlainReceives);
    const ae::TimePoint paid =
        std::max(keepalives_paid_, now - at_once * flow::kKeepalivePrice) + flow::kKeepalivePrice;
    if (paid > now) return false;
    keepalives_paid_ = paid;
    return true;
  }
  /// Whether so many messages came since the peer's last probe that an aeconn peer would probe
  /// again. `received`: all its messages, this one included; `told`: as above.
  bool takes_probe(std::uint64_t received, std::uint32_t told) noexcept {
    const std::uint64_t since = received - std::exchange(received_at_probe_, received) - 1;
    return since >= flow::probe_at(told != 0 ? flow::counted(told) : flow::kPlainReceives);
  }
  void check() const { assert(tokens_ >= 0 && tokens_ <= burst_); }

 private:
  std::uint32_t rate_, burst_;
  double tokens_;
  ae::TimePoint tokens_at_;
  ae::TimePoint keepalives_paid_{};  // keepalives are paid up to here, flow::kKeepalivePrice each
  std::uint64_t received_at_probe_ = 0;
};

}}}  // namespace conn::rdma
