// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Queue pairs that are created in advance for future connections, each with memory for the
// connection's first receive window. The slowest calls are thus made while the loop is idle, not
// while hundreds of connections arrive.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ae/abi.h"
#include "conn/rdma/device/verbs.h"
#include "conn/rdma/memory/blocks.h"
#include "conn/rdma/memory/completion_queues.h"
#include "conn/rdma/memory/domain.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// The parameters with which a queue pair is created. Queue pairs of equal shape are
/// interchangeable.
struct QueuePairShape {
  /// Protection domain of the queue pair, which the connections of the loop share.
  const Domain* domain = nullptr;
  std::uint32_t sends = 0;        ///< number of requests that the send queue can hold
  std::uint32_t inline_data = 0;  ///< bytes of inline data to request; the device may give less
  bool operator==(const QueuePairShape&) const = default;
};

struct PreparedQueuePair {
  QueuePairShape shape;
  CqLease lease;
  Qp qp;  ///< queue pair in state RESET; declared after `lease`, so that it is destroyed first
  ibv_qp_cap cap{};
  Pinned rings;
};

/// Returns the attributes for ibv_create_qp(): without a receive queue of its own, and with one
/// piece of memory (scatter/gather entry) for each send. The caller may change them.
ibv_qp_init_attr ask_for(const QueuePairShape& shape, const CqLease& lease) noexcept;
/// Counts the approximate size of a queue pair's rings as pinned memory for as long as the result
/// exists.
Pinned pin_rings(const ibv_qp_cap& cap) noexcept;

class PreparedQueuePairs {
 public:
  PreparedQueuePairs() = default;
  PreparedQueuePairs(const PreparedQueuePairs&) = delete;
  PreparedQueuePairs& operator=(const PreparedQueuePairs&) = delete;
  ~PreparedQueuePairs() { clear(); }

  std::size_t size() const noexcept { return ready_.size(); }
  std::size_t count(const QueuePairShape& shape) const noexcept;
  /// Stores a queue pair that was created in advance, and acquires `window` bytes of memory for its
  /// first receive window. Throws VerbsError or std::bad_alloc.
  void add(PreparedQueuePair made, Domain& domain, std::uint32_t window, const MemoryLimit& limit);
  /// Removes a queue pair of this shape and returns it. Releases the memory kept for its first
  /// receive window to the pool, where the caller can acquire it. Returns no value if there is no
  /// such queue pair.
  std::optional<PreparedQueuePair> take(const QueuePairShape& shape) noexcept;
  /// Destroys one queue pair that was created in advance. Returns false if there was none.
  bool drop_one() noexcept;
  /// Destroys all queue pairs that were created in advance in this protection domain.
  void drop_of(const Domain& domain) noexcept;
  void clear() noexcept;

 private:
  struct Kept {
    PreparedQueuePair pair;
    RegisteredPool* pool = nullptr;
    Block* window = nullptr;
    void release() noexcept;
  };
  std::vector<Kept> ready_;
};

}}}  // namespace conn::rdma
