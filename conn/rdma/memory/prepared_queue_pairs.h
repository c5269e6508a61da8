// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Queue pairs that are prepared for future connections, each with the key and the memory of the
// connection's first receive window. The steps that take a device longest are thus done while the
// loop is idle, not while hundreds of connections arrive.

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

/// The parameters that a queue pair is created with. Queue pairs of the same shape are
/// interchangeable.
struct QueuePairShape {
  /// Protection domain of the queue pair, shared by a loop's connections.
  const Domain* domain = nullptr;
  std::uint32_t sends = 0;        ///< number of requests that the send queue can hold
  std::uint32_t inline_data = 0;  ///< bytes of inline data to request; the device may give less
  bool operator==(const QueuePairShape&) const = default;
};

struct PreparedQueuePair {
  QueuePairShape shape;
  CqLease lease;
  Qp qp;  ///< queue pair in state RESET; destroyed before its `lease`
  ibv_qp_cap cap{};
  Pinned rings;
};

/// Returns the attributes for ibv_create_qp(), without receives of the queue pair's own and with
/// one piece of memory for each send.
ibv_qp_init_attr ask_for(const QueuePairShape& shape, const CqLease& lease) noexcept;
/// Counts the approximate size of a queue pair's rings as pinned memory, while the result exists.
Pinned pin_rings(const ibv_qp_cap& cap) noexcept;

class PreparedQueuePairs {
 public:
  PreparedQueuePairs() = default;
  PreparedQueuePairs(const PreparedQueuePairs&) = delete;
  PreparedQueuePairs& operator=(const PreparedQueuePairs&) = delete;
  ~PreparedQueuePairs() { clear(); }

  std::size_t size() const noexcept { return ready_.size(); }
  std::size_t count(const QueuePairShape& shape) const noexcept;
  /// Stores a prepared queue pair. Also acquires the memory of its first receive window, of
  /// `window` bytes, and keeps it. Throws VerbsError or std::bad_alloc.
  void add(PreparedQueuePair made, Domain& domain, std::uint32_t window, const MemoryLimit& limit);
  /// Takes a queue pair of this shape, and releases its window's memory to the pool for the caller
  /// to acquire. Returns no value if there is no such queue pair.
  std::optional<PreparedQueuePair> take(const QueuePairShape& shape) noexcept;
  /// Destroys one prepared queue pair. Returns false if there was none.
  bool drop_one() noexcept;
  /// Destroys the prepared queue pairs of a domain that is no longer shared.
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
