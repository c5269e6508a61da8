// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Spread: rules that assign pending connections to the loops of a listener group.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// What a program's own rule is told about a pending connection.
struct Arriving {
  std::string_view peer;  ///< "10.0.0.1:40112"; valid during the call
  /// Open connections by loop: assigned and not yet ended. The maximum value for a loop that has
  /// ended.
  std::span<const std::uint64_t> connections;
};

/// A rule that assigns pending connections to loops.
class Spread {
 public:
  /// Returns the index of a loop. An invalid index, the index of a loop that has ended, or an
  /// exception (which is swallowed) selects the loop with the fewest connections. Runs on the
  /// thread of the loop that listens, one call at a time; when that loop ends, another loop's
  /// thread takes over. It must not use loops, listeners or connections.
  using Pick = std::function<std::size_t(const Arriving&)>;
  /// The kind of rule.
  enum class By : std::uint8_t {
    kFewest,      ///< fewest()
    kRoundRobin,  ///< round_robin()
    kKernel,      ///< kernel()
    kPick         ///< by()
  };

  /// The loop with the fewest connections, counting those assigned to it that have not ended, ready
  /// or not. Loops with equal counts take turns.
  static Spread fewest() { return Spread(By::kFewest); }
  static Spread round_robin() { return Spread(By::kRoundRobin); }  ///< each loop in turn
  /// The kernel's hash of addresses and ports (SO_REUSEPORT), without hand-over between threads:
  /// each loop listens itself. Requires Capabilities::reuseport. The distribution is uneven, and
  /// before Linux 5.14 (net.ipv4.tcp_migrate_req) the backlog of a loop that ends is lost.
  static Spread kernel() { return Spread(By::kKernel); }
  /// Uses the program's own rule.
  static Spread by(Pick pick) {
    Spread spread(By::kPick);
    spread.pick_ = std::move(pick);
    return spread;
  }

  By how() const noexcept { return by_; }              ///< the kind of rule
  const Pick& pick() const noexcept { return pick_; }  ///< the rule of by(), or empty

 private:
  explicit Spread(By by) : by_(by) {}
  By by_;
  Pick pick_;
};

}}  // namespace conn
