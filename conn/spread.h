// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which loop serves an arrival.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// What a function that spreads by itself is told.
struct Arriving {
  std::string_view peer;  ///< "10.0.0.1:40112"; valid during the call
  /// Connections of each loop: assigned, and not yet ended. Of a loop that has ended: the largest
  /// number there is.
  std::span<const std::uint64_t> connections;
};

/// A rule by which arrivals get their loops.
class Spread {
 public:
  /// Gives the index of a loop. Another number, that of a loop that has ended, or an exception,
  /// which goes no further, means the one with the fewest connections. Runs on the thread of the
  /// loop that listens, one call at a time; with that loop's end on another's. It may use nothing
  /// of loops, listeners and connections.
  using Pick = std::function<std::size_t(const Arriving&)>;
  /// Which rule it is.
  enum class By : std::uint8_t {
    kFewest,      ///< fewest()
    kRoundRobin,  ///< round_robin()
    kKernel,      ///< kernel()
    kPick         ///< by()
  };

  /// The loop with the fewest connections: those count that were given to it and have not ended,
  /// ready or not. Those that have as few take turns.
  static Spread fewest() { return Spread(By::kFewest); }
  static Spread round_robin() { return Spread(By::kRoundRobin); }  ///< each loop in turn
  /// The kernel's hash of addresses and ports (SO_REUSEPORT), and no hand-over: each loop listens
  /// for itself. Only where Capabilities::reuseport is. Some loops get more than others, and what
  /// waits in the backlog of a loop that ends is lost before Linux 5.14
  /// (net.ipv4.tcp_migrate_req).
  static Spread kernel() { return Spread(By::kKernel); }
  /// The program's own rule.
  static Spread by(Pick pick) {
    Spread spread(By::kPick);
    spread.pick_ = std::move(pick);
    return spread;
  }

  By how() const noexcept { return by_; }              ///< which rule
  const Pick& pick() const noexcept { return pick_; }  ///< by(): the rule; else empty

 private:
  explicit Spread(By by) : by_(by) {}
  By by_;
  Pick pick_;
};

}}  // namespace conn
