// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Spreading: chooses the loop of a listener group that gets a pending connection. A pure
// computation: it gets the numbers of connections, and returns the index of a loop.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "conn/spread.h"

namespace conn { inline namespace AECONN_ABI {

/// The state of one loop of a group, by which a loop is chosen.
struct LoopLoad {
  bool ended = false;  ///< true if the loop has ended, so that it must not be chosen
  /// Number of connections that were passed to the loop, and whose set-up has not begun.
  std::uint32_t waiting = 0;
  /// Number of connections that were assigned to the loop and have not ended.
  std::uint64_t open = 0;
};

/// Applies the rule of a Spread. The functions that choose a loop get the number of loops, and
/// `load`, a function that returns the LoopLoad of the loop with a given index. Thread-safe; a load
/// that another thread changes during a choice makes the distribution less even, but no choice
/// invalid.
class Spreading {
 public:
  /// The largest number of pending connections that may wait for one loop to take them. While a
  /// loop has this many, another loop with fewer is chosen instead. If all loops have this many,
  /// further connections stay in the kernel's backlog until one loop has only half as many.
  static constexpr std::uint32_t kMostWaiting = 128;
  /// Returned instead of an index if all loops have ended.
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  explicit Spreading(const Spread& spread) : how_(spread.how()), pick_(spread.pick()) {}
  Spread::By how() const noexcept { return how_; }

  /// Returns the index of the loop that gets a connection that loop `at` has accepted, or kNone.
  /// `peer` returns the peer's address; it is called for the program's own rule only. May throw
  /// std::bad_alloc.
  template <class Peer, class Load>
  std::size_t choose(std::size_t at, const Peer& peer, std::size_t loops, const Load& load) {
    std::size_t chosen = kNone;
    if (how_ == Spread::By::kRoundRobin) {
      chosen = in_turn(loops, load);
    } else if (how_ == Spread::By::kKernel) {
      if (!load(at).ended) return at;
    } else if (how_ == Spread::By::kPick) {
      std::vector<std::uint64_t> counts(loops);
      for (std::size_t i = 0; i < loops; ++i) {
        const LoopLoad each = load(i);
        counts[i] = each.ended ? std::numeric_limits<std::uint64_t>::max() : each.open;
      }
      const std::size_t index = pick(peer(), counts);
      if (index < loops && !load(index).ended) return index;
    }
    return chosen != kNone ? chosen : choose_fewest(loops, load);
  }

  /// Returns the index of a loop as choose() does with the rule Spread::fewest().
  template <class Load>
  std::size_t choose_fewest(std::size_t loops, const Load& load) noexcept {
    const std::size_t best = fewest(loops, load);
    if (best != kNone) next_ = best + 1;
    return best;
  }

  /// Returns the index of the loop with the fewest connections. A loop for which at least
  /// kMostWaiting connections wait is returned only if as many wait for each loop. Among equal
  /// loops, returns the one that follows the loop that was chosen last. kNone if all loops have
  /// ended.
  template <class Load>
  std::size_t fewest(std::size_t loops, const Load& load) const noexcept {
    std::size_t best = kNone;
    LoopLoad least;
    const std::size_t first = next_;
    for (std::size_t i = 0; i < loops; ++i) {
      const std::size_t index = (first + i) % loops;
      const LoopLoad each = load(index);
      if (each.ended) continue;
      const bool full = each.waiting >= kMostWaiting, least_full = least.waiting >= kMostWaiting;
      if (best != kNone && !(full != least_full ? least_full : each.open < least.open)) continue;
      best = index;
      least = each;
    }
    return best;
  }

  /// Returns whether no loop can take further connections: each loop has ended, or kMostWaiting
  /// connections wait for it. If the program chooses the loops, it is enough that kMostWaiting
  /// connections wait for one loop, because the program may choose just that one.
  template <class Load>
  bool is_full(std::size_t loops, const Load& load) const noexcept {
    const bool by_program = how_ == Spread::By::kPick;
    for (std::size_t i = 0; i < loops; ++i) {
      const LoopLoad each = load(i);
      const bool crowded = each.waiting >= kMostWaiting;
      if (by_program && !each.ended && crowded) return true;
      if (!by_program && !each.ended && !crowded) return false;
    }
    return !by_program;
  }

  /// Destroys the function that the program passed to Spread::by(). It is not called afterwards.
  void forget_function() noexcept;

 private:
  // Returns the index of the next loop in turn that has not ended, if possible of one for which
  // fewer than kMostWaiting connections wait.
  template <class Load>
  std::size_t in_turn(std::size_t loops, const Load& load) noexcept {
    std::size_t full = kNone;
    const std::size_t first = next_;
    for (std::size_t i = 0; i < loops; ++i) {
      const std::size_t index = (first + i) % loops;
      const LoopLoad each = load(index);
      if (each.ended) continue;
      if (each.waiting < kMostWaiting) {
        next_ = index + 1;
        return index;
      }
      if (full == kNone) full = index;
    }
    return full;
  }
  // Calls the program's function that chooses a loop; returns kNone if that throws, or was
  // destroyed.
  std::size_t pick(const std::string& peer, const std::vector<std::uint64_t>& counts) noexcept;

  const Spread::By how_;
  // The loop that the next choice considers first, modulo the number of loops.
  std::atomic<std::size_t> next_{0};
  ae::Mutex picking_;
  Spread::Pick pick_;  // the program's function that chooses a loop; guarded by the mutex picking_
};

}}  // namespace conn
