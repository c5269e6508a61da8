// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Memory that the peer writes into, and the key that allows it: bound to one queue pair where the
// device supports that (a memory window of type 2), otherwise the key of the region, which then
// belongs to one connection's domain or to peers that trust each other.
//
//   kFree -> kToBind -> kBinding -> kUsable -> kToInvalidate -> kInvalidating -> kFree
//   kFree -> kUsable -> kFree                                     with a region's key
//
// A bound key must be invalidated before the memory may serve another peer.

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
    kToBind,   ///< the bind is to be posted
    kBinding,  ///< the bind is posted, not completed
    kUsable,
    kToInvalidate,  ///< no longer needed: its key must be invalidated first
    kInvalidating,
  };

  ReceiveWindow() = default;
  ReceiveWindow(const ReceiveWindow&) = delete;
  ReceiveWindow& operator=(const ReceiveWindow&) = delete;

  State state() const noexcept { return state_; }
  bool waits_for_key() const noexcept {
    return state_ == State::kToBind || state_ == State::kToInvalidate;
  }
  /// The request with this number binds it.
  bool is_bound_by(std::uint32_t sequence) const noexcept {
    return state_ == State::kBinding && sequence_ == sequence;
  }
  bool key_under_way() const noexcept {
    return state_ == State::kBinding || state_ == State::kInvalidating;
  }
  /// Bytes that the peer may write; the memory is whole pages.
  std::uint32_t length() const noexcept { return length_; }
  WindowBuffer buffer() noexcept;

  /// Acquires memory, and a key where keys are bound. Throws VerbsError.
  void open(Domain& domain, std::uint32_t length, const MemoryLimit& limit);
  /// The window is no longer needed. False: its key must be invalidated first (kToInvalidate).
  bool retire() noexcept;
  /// Fills in the work request for kToBind or kToInvalidate.
  void fill(ibv_send_wr& request) noexcept;
  /// The request was posted, with this number on the send queue.
  void posted(std::uint32_t sequence) noexcept;
  /// All sends up to `sequence` are done. True if that changed the state.
  bool completed(std::uint32_t sequence, Domain& domain) noexcept;
  /// For the end of the queue pair: first its keys go, then the queue pair, then the memory.
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
