// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Limits the rate of the control messages that a peer may send. Messages that follow from an action
// of ours are not limited, such as the offer of a new receive window after we filled the last one;
// nor are keepalives and probes at their normal rate. All others are charged to a budget. The
// connection to a peer that exceeds the budget is ended, so that the peer cannot use up the loop's
// time (conn/rdma/protocol/flow_control.h).

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
  /// Creates a budget that allows the peer `rate` control messages per second, and up to `burst` at
  /// once.
  ControlBudget(std::uint32_t rate, std::uint32_t burst, ae::TimePoint now) noexcept
      : rate_(rate), burst_(burst), tokens_(burst), tokens_at_(now) {}

  /// Makes the whole budget available again, for a new network path.
  void begin_again(ae::TimePoint now) noexcept { *this = ControlBudget(rate_, burst_, now); }

  /// Charges one control message of the peer to the budget. Returns false if the budget is used up;
  /// the caller then ends the connection, because the peer floods us.
  [[nodiscard]] bool spend(ae::TimePoint now) noexcept {
    // `now` can be earlier than the creation of this object, because the loop's time does not
    // advance while a handler runs.
    const std::chrono::duration<double> elapsed = std::max(now - tokens_at_, ae::Duration::zero());
    tokens_at_ = std::max(now, tokens_at_);
    tokens_ = std::min<double>(burst_, tokens_ + elapsed.count() * rate_);
    if (tokens_ < 1) return false;
    tokens_ -= 1;
    return true;
  }
  /// Returns true if the peer's keepalives, including one that arrives now, are no more frequent
  /// than an aeconn peer sends them, and counts this one. Several keepalives at once are accepted,
  /// because they queue up while our loop is stopped. `announced`: the number of our receives that
  /// we announced to the peer; 0: none was announced.
  bool takes_keepalive(std::uint32_t announced, ae::TimePoint now) noexcept {
    const std::uint32_t at_once = std::max(announced, flow::kPlainReceives);
    const ae::TimePoint paid =
        std::max(keepalives_paid_, now - at_once * flow::kKeepalivePrice) + flow::kKeepalivePrice;
    if (paid > now) return false;
    keepalives_paid_ = paid;
    return true;
  }
  /// Returns true if a probe that arrives now was due: the peer has sent as many messages since its
  /// last probe as an aeconn peer sends between two probes. `received`: number of all messages of
  /// the peer, including this one; `announced`: the number of our receives that we announced to the
  /// peer; 0: none was announced.
  bool takes_probe(std::uint64_t received, std::uint32_t announced) noexcept {
    const std::uint64_t since = received - std::exchange(received_at_probe_, received) - 1;
    return since >=
           flow::probe_at(announced != 0 ? flow::counted(announced) : flow::kPlainReceives);
  }
  void check() const { assert(tokens_ >= 0 && tokens_ <= burst_); }

 private:
  std::uint32_t rate_, burst_;
  double tokens_;
  ae::TimePoint tokens_at_;
  // Rate limit of the peer's keepalives: each accepted keepalive advances this time by
  // flow::kKeepalivePrice, and a keepalive that would advance it past the current time is refused.
  ae::TimePoint keepalives_paid_{};
  std::uint64_t received_at_probe_ = 0;
};

}}}  // namespace conn::rdma
