// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How the server's connections and requests are spread over its loops. Each loop updates its own
// counters; any thread may read them.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fields.h"

namespace perf {

/// A counter with one writer thread and any number of readers: adding is a load and a store,
/// without a lock.
class Count {
 public:
  void add(std::uint64_t more) noexcept { set(value() + more); }
  void take() noexcept { set(value() - 1); }
  std::uint64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  void set(std::uint64_t value) noexcept { value_.store(value, std::memory_order_relaxed); }
  std::atomic<std::uint64_t> value_{0};
};

/// Counters of one loop. Connections count from their hello on; control connections do not count.
struct alignas(64) LoopCounts {
  Count open;      ///< connections that are open
  Count begun;     ///< connections so far, the ended ones included
  Count requests;  ///< messages received; for a stream in both directions, messages sent as well
};

/// The counters of one loop, as the answer to a query contains them.
struct LoopFacts {
  std::uint64_t open = 0, begun = 0, requests = 0;

  /// Stores as many loops as fit in one text, starting at `first`, and the total number of loops.
  static void store(const std::vector<LoopCounts>& loops, std::uint64_t first, Fields& fields);
  /// Appends to `to` the loops that store() wrote to `fields`. Returns the total number of loops,
  /// or 0 if the answer does not report them.
  static std::size_t load(const Fields& fields, std::vector<LoopFacts>& to);
};

/// Parses `--loops`. Throws conn::Error if `text` is not a number from 0 to kMostLoops; 0 gives the
/// number of processors that this process may use.
std::size_t loops_of(const std::string& text);
inline constexpr std::size_t kMostLoops = 256;

}  // namespace perf
