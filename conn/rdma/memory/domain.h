// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a queue pair's keys can reach: a protection domain with its receives, its memory to send
// from and its receive windows. The connections of a loop share one where keys can be bound to a
// queue pair or peers trust each other; otherwise each connection has its own.

#include <cstdint>
#include <memory>
#include <vector>

#include "ae/abi.h"
#include "conn/rdma/device/device.h"
#include "conn/rdma/memory/blocks.h"
#include "conn/rdma/memory/bound_key.h"
#include "conn/rdma/memory/receive_queue.h"
#include "conn/rdma/memory/staging_queue.h"
#include "conn/rdma/memory/user_memory.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class Domain {
 public:
  struct Config {
    bool shared = false;                ///< by the connections of a loop
    bool bind_keys = false;             ///< windows get keys for one queue pair only (MW type 2)
    std::uint32_t shared_receives = 0;  ///< depth of the SRQ; 0: queue pairs have their own
    std::uint32_t own_receives = 0;     ///< of the only connection, if it is not shared
  };
  /// Borrows `pages`. Throws VerbsError.
  Domain(Device& device, PagePool& pages, const Config& config, const MemoryLimit& limit);

  ibv_pd* pd() const noexcept { return pd_.get(); }
  ibv_srq* srq() const noexcept { return srq_.get(); }
  ReceiveQueue* shared_receives() const noexcept { return receives_.get(); }
  /// What the device reads and writes for us: bytes to send, receives, control messages.
  RegisteredPool& local() noexcept { return local_; }
  ReferencePool& references() noexcept { return references_; }
  /// User memory that is sent from without a copy.
  Registrations& user_memory() noexcept { return user_memory_; }
  /// Memory that peers write. Long windows come and go; short ones stay, so they have slabs of
  /// their own and do not keep slabs of long windows from being freed.
  RegisteredPool& windows(std::size_t length) noexcept {
    return length <= kShortWindow ? *short_windows_ : *long_windows_;
  }
  bool shared() const noexcept { return config_.shared; }
  bool bind_keys() const noexcept { return config_.bind_keys; }
  /// Keys serve one queue pair after the other (not with Device::keys_are_younger()).
  bool hands_keys_on() const noexcept { return hands_keys_on_; }
  /// Returns a memory window to bind. Throws VerbsError.
  BoundKey take_key();
  /// Keeps an invalidated key for the next take_key(); frees it if there is no memory to keep it.
  void keep_key(BoundKey key) noexcept;
  /// Sets how many keys to keep available, where keys are handed on; makes one if there are fewer.
  /// Throws VerbsError or std::bad_alloc.
  void keep_ready(std::size_t keys);
  /// From now on windows use the region's key. Only for a domain with one user, which has no window
  /// at the moment. Throws std::bad_alloc.
  void give_up_binding();

  /// Before the domain is destroyed: frees one slab that is not in use. False: there is none.
  bool give_back_one() noexcept {
    return local_.give_back_one() || short_windows_->give_back_one() ||
           long_windows_->give_back_one();
  }
  /// For when the device is to be closed while memory is still held: that memory becomes ordinary
  /// memory, and everything of the device is destroyed. No queue pair may exist here any more.
  void leave_device() noexcept;
  /// Frees keys that were not needed for a while.
  void tick(ae::TimePoint now) noexcept;
  bool at_rest() const noexcept { return keys_.size() <= keys_ready_; }

 private:
  static constexpr std::size_t kShortWindow = 64 * 1024;
  std::unique_ptr<RegisteredPool> make_windows() const;
  BoundKey make_key() const;

  Config config_;
  const bool hands_keys_on_, windows_are_regions_;
  PagePool& pages_;
  Pd pd_;  // destroyed last
  RegisteredPool local_;
  std::unique_ptr<RegisteredPool> short_windows_, long_windows_;
  ReferencePool references_;
  Registrations user_memory_;
  std::vector<BoundKey> keys_;  // not bound
  std::size_t keys_ready_ = 0;  // of these, never given back
  std::unique_ptr<ReceiveQueue> receives_;
  Pinned rings_;
  Srq srq_;
};

}}}  // namespace conn::rdma
