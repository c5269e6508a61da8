// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The protection domains of one event loop on one device, and which of them a new connection uses.
// At most two are shared by connections: one whose keys are bound to a queue pair, and one for
// peers that trust each other. The one created first has the shared receive queue, if the device
// supports such queues. Every other connection has a domain of its own.

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

  /// Returns the protection domain for a new connection. `own_receives`: number of receives of the
  /// connection, used if it gets a domain of its own. `may_bind`: false if the connection must bind
  /// no keys even if the device can. Throws VerbsError.
  std::shared_ptr<Domain> for_connection(const Settings& settings, std::uint32_t own_receives,
                                         bool may_bind);
  /// Returns the shared domain in which queue pairs can be prepared for connections with these
  /// settings; null if such connections do not share a receive queue. Throws VerbsError.
  Domain* for_prepared(const Settings& settings);
  /// Returns the error of a connection with option isolation=window on a device without usable
  /// memory windows.
  Failure no_windows() const;
  /// Call it when the device has refused to bind a key for `domain`, which only one connection
  /// uses. That connection keeps the domain for itself; new connections do not get it. Throws
  /// std::bad_alloc.
  void give_up_binding(Domain& domain);
  /// Lets tick() free the keys that were kept for future connections.
  void drop_ready_keys() noexcept;
  /// Frees one slab of unused memory, which is a slow call. Returns false if there is none.
  bool give_back_one() noexcept;
  /// Call it before the device is closed. Where connections still use memory of a shared domain,
  /// turns that into ordinary memory.
  void leave_device() noexcept;

  /// Returns the receive queue that connections share; null if there is none.
  ReceiveQueue* shared_receives() const noexcept {
    return shared_ ? shared_->shared_receives() : nullptr;
  }
  std::uint32_t shared_depth() const noexcept;
  /// Makes the device report when few shared receives are left.
  void arm_shortage_event() noexcept;

  /// Frees keys that were not needed for a while; call it about once a second.
  void tick(ae::TimePoint now) noexcept;
  bool at_rest() const noexcept;

 private:
  bool binds(const Settings& settings) const;
  /// Returns the shared domain whose keys are bound to a queue pair (`bind`) or not. It is created
  /// on first use.
  std::shared_ptr<Domain>& common(const Settings& settings, bool bind);

  Device& device_;
  PagePool& pages_;
  std::shared_ptr<Domain> shared_;
  // The shared domain with the other value of bind_keys() than shared_; has no shared receive
  // queue.
  std::shared_ptr<Domain> second_;
};

}}}  // namespace conn::rdma
