// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A receive window: memory that the peer writes into, and the key that allows it to. If the device
// supports memory windows of type 2, the key is bound to one queue pair. Otherwise it is the key of
// the whole memory region, which then belongs to the domain of one connection or of peers that
// trust each other.
//
//   kFree -> kToBind -> kBinding -> kUsable -> kToInvalidate -> kInvalidating -> kFree
//   kFree -> kUsable -> kFree                                     with a region's key
//
// A bound key must be invalidated before its memory may be used for another peer.

#include <cstdint>

#include "ae/abi.h"
#include "conn/rdma/memory/blocks.h"
#include "conn/rdma/memory/bound_key.h"
#include "conn/rdma/protocol/stream.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class Domain;

class ReceiveWindow {
 public:
  enum class State : std::uint8_t {
    kFree,
    kToBind,   ///< its key must be bound: the request is not posted yet
    kBinding,  ///< the request that binds its key is posted, not completed
    kUsable,
    kToInvalidate,  ///< no longer needed; its key must be invalidated, which is not posted yet
    kInvalidating,
  };

  ReceiveWindow() = default;
  ReceiveWindow(const ReceiveWindow&) = delete;
  ReceiveWindow& operator=(const ReceiveWindow&) = delete;

  State state() const noexcept { return state_; }
  bool waits_for_key() const noexcept {
    return state_ == State::kToBind || state_ == State::kToInvalidate;
  }
  /// True if the request with this number on the send queue binds its key and has not completed.
  bool is_bound_by(std::uint32_t sequence) const noexcept {
    return state_ == State::kBinding && sequence_ == sequence;
  }
  bool key_under_way() const noexcept {
    return state_ == State::kBinding || state_ == State::kInvalidating;
  }
  /// Number of bytes that the peer may write. The memory itself is whole pages.
  std::uint32_t length() const noexcept { return length_; }
  WindowBuffer buffer() noexcept;

  /// Acquires memory, and also a key if the domain binds keys. Throws VerbsError.
  void open(Domain& domain, std::uint32_t length, const MemoryLimit& limit);
  /// Call it when the window is no longer needed. Returns true if its memory was released, false if
  /// its key must be invalidated first (state kToInvalidate).
  bool retire() noexcept;
  /// Fills in the work request that binds the key (in state kToBind) or invalidates it
  /// (kToInvalidate).
  void fill(ibv_send_wr& request) noexcept;
  /// Records that the request of fill() was posted as number `sequence` of the send queue.
  void posted(std::uint32_t sequence) noexcept;
  /// Records that all sends up to number `sequence` have completed. Returns true if that changed
  /// the state.
  bool completed(std::uint32_t sequence, Domain& domain) noexcept;
  /// Two steps around the end of a queue pair: call drop_key() before the queue pair is destroyed,
  /// drop() afterwards, which releases the memory.
  void drop_key() noexcept { key_ = {}; }
  void drop() noexcept;

 private:
  void drop_memory() noexcept;

  RegisteredPool* pool_ = nullptr;  ///< the pool of block_
  Block* block_ = nullptr;
  BoundKey key_;
  std::uint32_t length_ = 0;
  std::uint32_t sequence_ = 0;
  State state_ = State::kFree;
};

}}}  // namespace conn::rdma
