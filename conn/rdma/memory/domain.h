// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A protection domain (the device lets queue pairs use only memory of their own domain), with its
// posted receives, its memory for sending and its receive windows. The connections of a loop share
// one domain if the keys of receive windows can be bound to a queue pair, or if the peers trust
// each other; otherwise each connection has its own domain.

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
    bool shared = false;  ///< true if connections of a loop share this domain
    /// True: each receive window has a key that works on one queue pair only (a memory window of
    /// type 2).
    bool bind_keys = false;
    /// Number of receives in the shared receive queue (SRQ); 0: the domain has no SRQ.
    std::uint32_t shared_receives = 0;
    /// If the domain is not shared: number of receives posted for its one connection.
    std::uint32_t own_receives = 0;
  };
  /// Creates a protection domain on `device`. It takes memory from `pages`, which must outlive it.
  /// Throws VerbsError.
  Domain(Device& device, PagePool& pages, const Config& config, const MemoryLimit& limit);

  ibv_pd* pd() const noexcept { return pd_.get(); }
  ibv_srq* srq() const noexcept { return srq_.get(); }
  ReceiveQueue* shared_receives() const noexcept { return receives_.get(); }
  /// Returns the pool for memory that only the local device accesses: bytes to send, receives,
  /// control messages.
  RegisteredPool& local() noexcept { return local_; }
  ReferencePool& references() noexcept { return references_; }
  /// Returns the registrations of user memory, from which data is sent without a copy.
  Registrations& user_memory() noexcept { return user_memory_; }
  /// Returns the pool for receive windows of `length` bytes, which peers write into. Short windows
  /// stay allocated while long ones come and go. They have their own pool, so that memory of long
  /// windows can be freed.
  RegisteredPool& windows(std::size_t length) noexcept {
    return length <= kShortWindow ? *short_windows_ : *long_windows_;
  }
  bool shared() const noexcept { return config_.shared; }
  bool bind_keys() const noexcept { return config_.bind_keys; }
  /// Returns true if a memory window that one queue pair no longer needs may be bound to another
  /// queue pair; false if Device::keys_are_younger() is true.
  bool hands_keys_on() const noexcept { return hands_keys_on_; }
  /// Returns a memory window that is not bound, for the caller to bind. Throws VerbsError.
  BoundKey take_key();
  /// Stores a memory window whose key was invalidated, for the next take_key(). Frees it if there
  /// is no memory to store it.
  void keep_key(BoundKey key) noexcept;
  /// Sets how many unbound keys (memory windows without a queue pair) to keep available; has no
  /// effect unless bind_keys() and hands_keys_on(). If there are fewer, creates one; repeated calls
  /// create the others. Throws VerbsError or std::bad_alloc.
  void keep_ready(std::size_t keys);
  /// Stops binding keys: from now on, receive windows use the key of the whole memory region. Call
  /// it only for a domain with one connection, while that has no window. Throws std::bad_alloc.
  void give_up_binding();

  /// Frees one slab (large piece) of registered memory that is not in use. Returns false if there
  /// is none. Repeated calls, in several iterations of the loop, spread the work of destroying the
  /// domain.
  bool give_back_one() noexcept {
    return local_.give_back_one() || short_windows_->give_back_one() ||
           long_windows_->give_back_one();
  }
  /// Destroys all verbs objects of this domain, so that the device can be closed. Memory that is
  /// still in use stays valid as ordinary memory. No queue pair of this domain may exist any more.
  void leave_device() noexcept;
  /// Frees keys (memory windows) that have been unused for some time, except the number set by
  /// keep_ready().
  void tick(ae::TimePoint now) noexcept;
  bool at_rest() const noexcept { return keys_.size() <= keys_ready_; }

 private:
  static constexpr std::size_t kShortWindow = 64 * 1024;
  std::unique_ptr<RegisteredPool> make_windows() const;
  BoundKey make_key() const;

  Config config_;
  const bool hands_keys_on_, windows_are_regions_;
  PagePool& pages_;
  // Protection domain; declared before the objects that belong to it, so that it is destroyed last.
  Pd pd_;
  RegisteredPool local_;
  std::unique_ptr<RegisteredPool> short_windows_, long_windows_;
  ReferencePool references_;
  Registrations user_memory_;
  std::vector<BoundKey> keys_;  // keys that are not bound to a queue pair
  std::size_t keys_ready_ = 0;  // number of keys (memory windows) that tick() must not free
  std::unique_ptr<ReceiveQueue> receives_;
  Pinned rings_;
  Srq srq_;
};

}}}  // namespace conn::rdma
