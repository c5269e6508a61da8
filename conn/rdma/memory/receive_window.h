// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A receive window: memory that the peer writes into, and the key (rkey) with which it may do so.
// If the device supports memory windows of type 2, the key is bound to one queue pair. Otherwise it
// is the key of the whole memory region; the protection domain then belongs to one connection, or
// to peers that trust each other.
//
//   kFree -> kToBind -> kBinding -> kUsable -> kToInvalidate -> kInvalidating -> kFree
//   kFree -> kUsable -> kFree                                     with a region's key
//
// A bound key must be invalidated before the memory may be used for another peer.

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
    /// The window's key must be bound to the queue pair, and the bind request is not posted yet.
    kToBind,
    kBinding,  ///< the bind request is posted and has not completed
    kUsable,
    /// The window is no longer needed, and the request that invalidates its key is not posted yet.
    kToInvalidate,
    kInvalidating,
  };

  ReceiveWindow() = default;
  ReceiveWindow(const ReceiveWindow&) = delete;
  ReceiveWindow& operator=(const ReceiveWindow&) = delete;

  State state() const noexcept { return state_; }
  bool waits_for_key() const noexcept {
    return state_ == State::kToBind || state_ == State::kToInvalidate;
  }
  /// Returns true if request number `sequence` on the send queue binds the key of this window and
  /// has not completed.
  bool is_bound_by(std::uint32_t sequence) const noexcept {
    return state_ == State::kBinding && sequence_ == sequence;
  }
  bool key_under_way() const noexcept {
    return state_ == State::kBinding || state_ == State::kInvalidating;
  }
  /// Returns true if this receive window has a memory window and key of its own. A free receive
  /// window keeps them for its next use if other connections cannot use them
  /// (Domain::hands_keys_on()).
  bool has_key() const noexcept { return static_cast<bool>(key_.window); }
  /// Returns the number of bytes that the peer may write. (The memory itself may be larger.)
  std::uint32_t length() const noexcept { return length_; }
  WindowBuffer buffer() noexcept;

  /// Acquires memory for the window, and a key if the domain binds keys. Throws VerbsError.
  void open(Domain& domain, std::uint32_t length, const MemoryLimit& limit);
  /// Gives up the window, which is no longer needed. Returns true if the memory was released; false
  /// if the key must be invalidated first (state kToInvalidate).
  bool retire() noexcept;
  /// Fills in the work request that binds the key of this window (in state kToBind) or invalidates
  /// it (in state kToInvalidate).
  void fill(ibv_send_wr& request) noexcept;
  /// Records that the work request from fill() was posted, as number `sequence` of the send queue.
  void posted(std::uint32_t sequence) noexcept;
  /// Records that all requests on the send queue up to number `sequence` have completed. Returns
  /// true if that changed the state.
  bool completed(std::uint32_t sequence, Domain& domain) noexcept;
  /// drop_key() and drop() release a receive window when its queue pair ends. Call drop_key()
  /// before the queue pair is destroyed, and drop(), which releases the memory, afterwards, when
  /// the device can no longer write into it.
  void drop_key() noexcept { key_ = {}; }
  void drop() noexcept;

 private:
  void drop_memory() noexcept;

  RegisteredPool* pool_ = nullptr;  ///< the pool that block_ was acquired from
  Block* block_ = nullptr;
  BoundKey key_;
  std::uint32_t length_ = 0;
  std::uint32_t sequence_ = 0;
  State state_ = State::kFree;
};

}}}  // namespace conn::rdma
