#pragma once
// What a queue pair's keys reach: a protection domain with its receives, its staging memory and
// its receive windows. One is shared by the connections of a loop where keys can be bound to a
// queue pair or peers trust each other; else each connection has its own.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "conn/rdma/staging.h"
#include "conn/rdma/stream.h"
#include "conn/rdma/verbs.h"

namespace conn::rdma {

/// 32-byte receives, posted to a shared receive queue or to one queue pair, and posted again after
/// use in chains.
class ReceiveQueue {
 public:
  ReceiveQueue(ibv_pd* pd, std::uint32_t depth);
  void attach(ibv_srq* srq) noexcept { srq_ = srq; }
  void attach(ibv_qp* qp) noexcept { qp_ = qp; }

  std::span<const std::byte> buffer(std::uint32_t slot, std::uint32_t length) const noexcept;
  bool owns(std::uint32_t slot) const noexcept { return slot < depth_; }
  /// The receive came back; the next replenish() posts it again.
  void consumed(std::uint32_t slot) noexcept { free_.push_back(slot); }
  std::size_t missing() const noexcept { return free_.size(); }
  /// Posts what is missing. 0, or the errno of the post.
  int replenish() noexcept;
  std::uint32_t depth() const noexcept { return depth_; }

 private:
  std::uint32_t depth_;
  RegisteredMemory memory_;
  std::vector<std::uint32_t> free_;
  ibv_srq* srq_ = nullptr;
  ibv_qp* qp_ = nullptr;
};

/// wr_id of a receive; sends have this bit clear.
inline constexpr std::uint64_t kReceiveId = std::uint64_t{1} << 63;
/// Set besides for receives of one queue pair's own, whose completions may outlive it.
inline constexpr std::uint64_t kOwnReceiveId = std::uint64_t{1} << 62;

/// Memory the peer writes into, and the key that lets it.
struct ReceiveWindow {
  RegisteredMemory memory;
  Mw window;                 ///< set where the key is bound to the queue pair
  bool bound = false;        ///< the bind was posted
  std::uint32_t length = 0;  ///< what the peer may write; the memory is whole pages

  WindowBuffer buffer() noexcept;
  /// The device forgets the memory; what it holds stays readable.
  void unregister() noexcept;
};

class Domain {
 public:
  struct Config {
    std::uint32_t shared_receives = 0;  ///< depth of the SRQ; 0: queue pairs bring their own
    bool bind_keys = false;             ///< windows get keys of one queue pair only (MW type 2)
    std::size_t slab = 1 << 20;         ///< staging slab
  };
  /// Throws VerbsError.
  Domain(ibv_context* device, const Config& config);

  ibv_pd* pd() const noexcept { return pd_.get(); }
  ibv_srq* srq() const noexcept { return srq_.get(); }
  ReceiveQueue* shared_receives() const noexcept { return receives_.get(); }
  StagingPool& staging() noexcept { return staging_; }
  bool bind_keys() const noexcept { return config_.bind_keys; }
  /// Throws VerbsError.
  std::unique_ptr<ReceiveWindow> make_window(std::uint32_t length) const;

 private:
  Config config_;
  Pd pd_;  // destroyed last
  StagingPool staging_;
  std::unique_ptr<ReceiveQueue> receives_;
  Srq srq_;
};

}  // namespace conn::rdma
