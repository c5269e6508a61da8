// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Resources that all connections of a process share on one device: protection domain, completion
// queue and its channel, and receives. Also RAII owners for the objects of libibverbs and
// librdmacm.

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace limits {

template <auto Destroy>
struct Destroyer {
  template <class T>
  void operator()(T* object) const noexcept {
    Destroy(object);
  }
};
inline int dereg_mr(ibv_mr* mr) { return ibv_dereg_mr(mr); }

using Pd = std::unique_ptr<ibv_pd, Destroyer<ibv_dealloc_pd>>;
using CompChannel = std::unique_ptr<ibv_comp_channel, Destroyer<ibv_destroy_comp_channel>>;
using Cq = std::unique_ptr<ibv_cq, Destroyer<ibv_destroy_cq>>;
using Srq = std::unique_ptr<ibv_srq, Destroyer<ibv_destroy_srq>>;
using Mr = std::unique_ptr<ibv_mr, Destroyer<dereg_mr>>;
using CmChannel = std::unique_ptr<rdma_event_channel, Destroyer<rdma_destroy_event_channel>>;
using CmId = std::unique_ptr<rdma_cm_id, Destroyer<rdma_destroy_id>>;

/// Returns `object`; throws std::system_error for errno if it is null.
template <class T>
T* made(T* object, const char* what);
[[noreturn]] void fail(const char* what);

/// Registered memory on pages of its own.
class Memory {
 public:
  Memory(ibv_pd* pd, std::size_t size, int access);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();
  std::byte* data() const noexcept { return data_; }
  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(size_); }
  std::uint32_t lkey() const noexcept { return mr_->lkey; }
  std::uint32_t rkey() const noexcept { return mr_->rkey; }

 private:
  std::size_t size_;
  std::byte* data_;
  Mr mr_;
};

/// Work requests that are posted with one ibv_post_send().
struct Chain {
  static constexpr std::size_t kMost = 32;
  std::array<ibv_send_wr, kMost> requests;
  std::array<ibv_sge, kMost> pieces;
  std::array<std::array<std::byte, 32>, kMost> messages;
  std::size_t size = 0;
};

class Device {
 public:
  static constexpr std::uint32_t kReceiveSize = 32;
  /// Flag in the wr_id of send requests; the wr_id of a receive is its number.
  static constexpr std::uint64_t kSend = std::uint64_t{1} << 63;

  explicit Device(ibv_context* context);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();

  ibv_context* context() const noexcept { return pd_->context; }
  ibv_pd* pd() const noexcept { return pd_.get(); }
  ibv_cq* cq() const noexcept { return cq_.get(); }
  ibv_srq* srq() const noexcept { return srq_.get(); }
  /// Scratch space for posting.
  Chain& chain() noexcept { return chain_; }

  /// Becomes readable when a completion occurs after arm().
  int fd() const noexcept { return channel_->fd; }
  /// Returns false if already armed. If it returns true, poll once more before sleeping.
  bool arm();
  /// Call this when fd() is readable. An armed queue produces one event, so only one is read.
  void take_event();

  std::span<const std::byte> received(std::uint64_t receive) const noexcept {
    return {receives_.data() + receive * kReceiveSize, kReceiveSize};
  }
  /// Marks a completion as handled: its receive may be reposted, which happens in chains of 64.
  void give_back(const ibv_wc& completion) {
    if ((completion.wr_id & kSend) == 0) give_back(completion.wr_id);
  }

 private:
  static constexpr std::uint32_t kReceives = 4096;
  void give_back(std::uint64_t receive);
  void post_receives();

  // Order matters: destroyed from last to first.
  Pd pd_;
  CompChannel channel_;
  Cq cq_;
  Srq srq_;
  Memory receives_;
  Chain chain_;
  bool armed_ = false;
  unsigned events_ = 0;  // not yet acknowledged
  std::array<std::uint64_t, 64> unposted_;
  std::size_t unposted_size_ = 0;
};

template <class T>
T* made(T* object, const char* what) {
  if (object == nullptr) fail(what);
  return object;
}

}  // namespace limits
