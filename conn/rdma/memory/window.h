// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Memory the peer writes into, and the key that lets it: bound to one queue pair where the device
// can (a memory window of type 2), else the key of the region, which then belongs to one
// connection's domain or to peers who trust each other.
//
//   kFree -> kToBind -> kBinding -> kUsable -> kToInvalidate -> kInvalidating -> kFree
//   kFree -> kUsable -> kFree                                     with a region's key
//
// A key that is bound has to be invalidated before the peer's memory may be somebody else's.

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
    kToBind,   ///< the bind waits to be posted
    kBinding,  ///< and to complete
    kUsable,
    kToInvalidate,  ///< of no more use: its key has to go first
    kInvalidating,
  };

  ReceiveWindow() = default;
  ReceiveWindow(const ReceiveWindow&) = delete;
  ReceiveWindow& operator=(const ReceiveWindow&) = delete;

  State state() const noexcept { return state_; }
  bool waits_for_key() const noexcept {
    return state_ == State::kToBind || state_ == State::kToInvalidate;
  }
  /// That request is to bind it.
  bool is_bound_by(std::uint32_t sequence) const noexcept {
    return state_ == State::kBinding && sequence_ == sequence;
  }
  bool key_under_way() const noexcept {
    return state_ == State::kBinding || state_ == State::kInvalidating;
  }
  /// What the peer may write; the memory is whole pages.
  std::uint32_t length() const noexcept { return length_; }
  WindowBuffer buffer() noexcept;

  /// Takes memory, and a key if they are bound here. Throws VerbsError.
  void open(Domain& domain, std::uint32_t length, const MemoryLimit& limit);
  /// Of no more use. False: the key has to be invalidated first (kToInvalidate).
  bool retire() noexcept;
  /// The work request for kToBind or kToInvalidate.
  void fill(ibv_send_wr& request) noexcept;
  /// It was posted; its number on the send queue.
  void posted(std::uint32_t sequence) noexcept;
  /// All sends up to `sequence` are done. True if that makes a difference.
  bool completed(std::uint32_t sequence, Domain& domain) noexcept;
  /// The queue pair is going: its keys first, then itself, then the memory.
  void drop_key() noexcept { key_ = {}; }
  void drop() noexcept;

 private:
  void drop_memory() noexcept;

  RegisteredPool* pool_ = nullptr;  ///< of block_
  Block* block_ = nullptr;
  BoundKey key_;
  std::uint32_t length_ = 0;
  std::uint32_t sequence_ = 0;
  State state_ = State::kFree;
};

}}}  // namespace conn::rdma
