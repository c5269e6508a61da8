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

/// A pending connection, as described to a program's own rule (Spread::by()).
struct Arriving {
  std::string_view peer;  ///< address of the peer, "10.0.0.1:40112"; valid during the call
  /// For each loop, the number of connections assigned to it that have not ended. A loop that has
  /// ended has the maximum value of the type.
  std::span<const std::uint64_t> connections;
};

/// A rule that decides which loop of a listener group gets a pending connection.
class Spread {
 public:
  /// A program's own rule: returns the index of the loop that gets the pending connection. If the
  /// index is invalid or that of a loop that has ended, or if the function throws (the exception is
  /// dropped), the loop with the fewest connections gets it. Runs on the thread of the loop that
  /// listens, one call at a time; when that loop ends, another loop's thread takes over. The
  /// function must not use loops, listeners or connections.
  using Pick = std::function<std::size_t(const Arriving&)>;
  /// The kind of a rule. Each value is named after the function that makes such a rule.
  enum class By : std::uint8_t {
    kFewest,      ///< each connection goes to the loop that has the fewest connections
    kRoundRobin,  ///< connections go to each loop in turn
    kKernel,      ///< the kernel chooses the loop (SO_REUSEPORT)
    kPick         ///< a function of the program chooses the loop
  };

  /// Makes a rule that chooses the loop with the fewest connections. It counts connections that are
  /// assigned to the loop and have not ended, ready or not. Loops with equal counts take turns.
  static Spread fewest() { return Spread(By::kFewest); }
  /// Makes a rule that assigns pending connections to each loop in turn.
  static Spread round_robin() { return Spread(By::kRoundRobin); }
  /// Makes a rule that leaves the choice to the kernel, which hashes addresses and ports
  /// (SO_REUSEPORT). Each loop listens itself, and no connection is handed over between threads.
  /// Requires Capabilities::reuseport. The distribution is uneven, and before Linux 5.14
  /// (net.ipv4.tcp_migrate_req) the backlog of a loop that ends is lost.
  static Spread kernel() { return Spread(By::kKernel); }
  /// Makes the rule that calls the program's function `pick` to choose the loop.
  static Spread by(Pick pick) {
    Spread spread(By::kPick);
    spread.pick_ = std::move(pick);
    return spread;
  }

  By how() const noexcept { return by_; }  ///< the kind of this rule
  /// The function that was passed to by(); empty if this rule was made by another function.
  const Pick& pick() const noexcept { return pick_; }

 private:
  explicit Spread(By by) : by_(by) {}
  By by_;
  Pick pick_;
};

}}  // namespace conn
