// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How the server's connections and requests are spread over its loops. Each loop counts for itself;
// who wants to know reads, on any thread.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fields.h"

namespace perf {

/// A number that one thread writes and any reads: to add is a load and a store, without a lock.
class Count {
 public:
  void add(std::uint64_t more) noexcept { set(value() + more); }
  void take() noexcept { set(value() - 1); }
  std::uint64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  void set(std::uint64_t value) noexcept { value_.store(value, std::memory_order_relaxed); }
  std::atomic<std::uint64_t> value_{0};
};

/// Of one loop. Connections count from their hello on; those that ask for costs do not.
struct alignas(64) LoopCounts {
  Count open;      ///< connections
  Count begun;     ///< connections, the ended ones included
  Count requests;  ///< messages taken; of a stream both ways those sent, too
};

/// The same numbers of all loops, as a query gives them.
struct LoopFacts {
  std::uint64_t open = 0, begun = 0, requests = 0;

  /// As many loops as fit in one text, from `first` on, and how many there are.
  static void store(const std::vector<LoopCounts>& loops, std::uint64_t first, Fields& fields);
  /// Appends what store() wrote to `to`; returns how many there are in all. Of an answer that does
  /// not tell: 0.
  static std::size_t load(const Fields& fields, std::vector<LoopFacts>& to);
};

/// Of `--loops`. Throws conn::Error, a sentence, if `text` is no number from 0 to kMostLoops; 0
/// gives the number of processors that this process may use.
std::size_t loops_of(const std::string& text);
inline constexpr std::size_t kMostLoops = 256;

}  // namespace perf
