// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a queue pair's keys reach: a protection domain with its receives, its memory to send from
// and its receive windows. One is shared by the connections of a loop where keys can be bound to a
// queue pair or peers trust each other; else each connection has its own.

#include <cstdint>
#include <memory>
#include <vector>

#include "ae/abi.h"
#include "conn/rdma/device/device.h"
#include "conn/rdma/memory/blocks.h"
#include "conn/rdma/memory/bound_key.h"
#include "conn/rdma/memory/receives.h"
#include "conn/rdma/memory/staging.h"
#include "conn/rdma/memory/user_memory.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class Domain {
 public:
  struct Config {
    bool shared = false;                ///< by the connections of a loop
    bool bind_keys = false;             ///< windows get keys of one queue pair only (MW type 2)
    std::uint32_t shared_receives = 0;  ///< depth of the SRQ; 0: queue pairs bring their own
    std::uint32_t own_receives = 0;     ///< of the only connection, where it is not shared
  };
  /// Borrows `pages`. Throws VerbsError.
  Domain(Device& device, PagePool& pages, const Config& config, const MemoryLimit& limit);

  ibv_pd* pd() const noexcept { return pd_.get(); }
  ibv_srq* srq() const noexcept { return srq_.get(); }
  ReceiveQueue* shared_receives() const noexcept { return receives_.get(); }
  /// What the device reads and writes on our behalf: bytes to send, receives, control messages.
  RegisteredPool& local() noexcept { return local_; }
  ReferencePool& references() noexcept { return references_; }
  /// What programs send from without a copy.
  Registrations& user_memory() noexcept { return user_memory_; }
  /// What peers write. Long windows come and go, so that short ones, which stay, have slabs of
  /// their own and hold none of theirs back.
  RegisteredPool& windows(std::size_t length) noexcept {
    return length <= kShortWindow ? *short_windows_ : *long_windows_;
  }
  bool shared() const noexcept { return config_.shared; }
  bool bind_keys() const noexcept { return config_.bind_keys; }
  /// Keys serve one queue pair after the other (Device::keys_are_younger()).
  bool hands_keys_on() const noexcept { return hands_keys_on_; }
  /// A window to bind. Throws VerbsError.
  BoundKey take_key();
  /// One that was invalidated, for the next; without memory for it, it is freed.
  void keep_key(BoundKey key) noexcept;
  /// So many are to stand ready, where keys are handed on; one is made if there are fewer. Throws
  /// VerbsError or std::bad_alloc.
  void keep_ready(std::size_t keys);
  /// From now on windows have the region's key. For its only user, who has no window at the moment.
  /// Throws std::bad_alloc.
  void give_up_binding();

  /// Before it goes: gives back one slab that nobody uses. False: there is none.
  bool give_back_one() noexcept {
    return local_.give_back_one() || short_windows_->give_back_one() ||
           long_windows_->give_back_one();
  }
  /// The device is to be closed, and somebody still holds memory: that stays, as memory like other,
  /// and everything of the device's goes. Nobody has a queue pair here any more.
  void leave_device() noexcept;
  /// Frees what was not needed for a while.
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
  std::vector<BoundKey> keys_;  // bound to nothing
  std::size_t keys_ready_ = 0;  // of them, never given back
  std::unique_ptr<ReceiveQueue> receives_;
  Pinned rings_;
  Srq srq_;
};

}}}  // namespace conn::rdma
