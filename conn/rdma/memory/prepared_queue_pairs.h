// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Queue pairs prepared for future connections, each with its key and the memory of its first
// window: what takes a device longest is done while the loop has time, not while hundreds of
// connections arrive.

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

/// What a queue pair is created with; queue pairs of one shape are interchangeable.
struct QueuePairShape {
  const Domain* domain = nullptr;  ///< a shared domain
  std::uint32_t sends = 0;         ///< depth of the send queue
  std::uint32_t inline_data = 0;   ///< bytes asked for; the device may give less
  bool operator==(const QueuePairShape&) const = default;
};

struct PreparedQueuePair {
  QueuePairShape shape;
  CqLease lease;
  Qp qp;  ///< in RESET; destroyed before its lease
  ibv_qp_cap cap{};
  Pinned rings;
};

/// Attributes for ibv_create_qp(): no receives of its own, and one piece for each send.
ibv_qp_init_attr ask_for(const QueuePairShape& shape, const CqLease& lease) noexcept;
/// Counts the approximate size of a queue pair's rings.
Pinned pin_rings(const ibv_qp_cap& cap) noexcept;

class PreparedQueuePairs {
 public:
  PreparedQueuePairs() = default;
  PreparedQueuePairs(const PreparedQueuePairs&) = delete;
  PreparedQueuePairs& operator=(const PreparedQueuePairs&) = delete;
  ~PreparedQueuePairs() { clear(); }

  std::size_t size() const noexcept { return ready_.size(); }
  std::size_t count(const QueuePairShape& shape) const noexcept;
  /// `window`: bytes of the first window, whose memory is kept for it. Throws VerbsError or
  /// std::bad_alloc.
  void add(PreparedQueuePair made, Domain& domain, std::uint32_t window, const MemoryLimit& limit);
  /// Takes a queue pair; the memory of its window is then free to be acquired. No value: there is
  /// none.
  std::optional<PreparedQueuePair> take(const QueuePairShape& shape) noexcept;
  /// Destroys one. False: there was none.
  bool drop_one() noexcept;
  /// Destroys those of a domain that is no longer shared.
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
