// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Selects the protection domain of a new connection, among those of one event loop on one device.
// At most two domains are shared by connections: one whose receive windows have keys bound to a
// queue pair, and one for peers that trust each other. The one created first has the shared receive
// queue, if the device supports such queues. Every other connection has its own domain.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "ae/abi.h"
#include "conn/rdma/config/settings.h"
#include "conn/rdma/device/device.h"
#include "conn/rdma/memory/domain.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class Domains {
 public:
  /// Both arguments must outlive this object.
  Domains(Device& device, PagePool& pages) noexcept : device_(device), pages_(pages) {}

  /// Returns the protection domain for a new connection. `own_receives`: number of receives, used
  /// if the connection gets its own domain. `may_bind`: false if the connection must not bind keys
  /// even if the device can. Throws VerbsError.
  std::shared_ptr<Domain> for_connection(const Settings& settings, std::uint32_t own_receives,
                                         bool may_bind);
  /// Returns the shared protection domain in which queue pairs can be created in advance for
  /// connections with these settings; null if such connections do not share a receive queue. Throws
  /// VerbsError.
  Domain* for_prepared(const Settings& settings);
  /// Returns the error that a connection with the option isolation=window gets if the device has no
  /// usable memory windows.
  Failure no_windows() const;
  /// Makes `domain`, which only one connection may use, work without bound keys, because the device
  /// has refused to bind one. That connection keeps the domain; new ones get another one. Throws
  /// std::bad_alloc.
  void give_up_binding(Domain& domain);
  /// Lets tick() free the keys (memory windows) that are kept for queue pairs created in advance.
  void drop_ready_keys() noexcept;
  /// Frees one slab (large piece) of unused registered memory; this is a slow call. Returns false
  /// if there is none.
  bool give_back_one() noexcept;
  /// Destroys the verbs objects of those shared protection domains that connections still use, so
  /// that the device can be closed. Their memory becomes ordinary memory.
  void leave_device() noexcept;

  /// Returns the receive queue that connections of this loop share on this device; null if there is
  /// none.
  ReceiveQueue* shared_receives() const noexcept {
    return shared_ ? shared_->shared_receives() : nullptr;
  }
  std::uint32_t shared_depth() const noexcept;
  /// Requests an event for the time when few shared receives are left (flow::kShortageAt).
  void arm_shortage_event() noexcept;

  /// Frees keys (memory windows) that have been unused for some time; call it about once a second.
  void tick(ae::TimePoint now) noexcept;
  bool at_rest() const noexcept;

 private:
  bool binds(const Settings& settings) const;
  /// Returns one of the two shared protection domains, which is created on first use. `bind`: the
  /// one whose keys are bound to a queue pair; otherwise the one for peers that trust each other.
  std::shared_ptr<Domain>& common(const Settings& settings, bool bind);

  Device& device_;
  PagePool& pages_;
  std::shared_ptr<Domain> shared_;
  // The other protection domain that connections share. If shared_ binds keys to queue pairs, this
  // one does not, and vice versa. It has no shared receive queue.
  std::shared_ptr<Domain> second_;
};

}}}  // namespace conn::rdma
