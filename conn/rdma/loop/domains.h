// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The protection domains of one loop on one device: which one a new connection gets. At most two
// are shared, one whose keys are bound to a queue pair and one for peers that trust each other. The
// first of them has the shared receive queue, if the device has such queues; every other connection
// has a domain of its own.

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
  /// Borrows both.
  Domains(Device& device, PagePool& pages) noexcept : device_(device), pages_(pages) {}

  /// The protection domain for a new connection. Throws VerbsError.
  std::shared_ptr<Domain> for_connection(const Settings& settings, std::uint32_t own_receives);
  /// The shared domain in which queue pairs can be prepared for connections with these settings.
  /// Null where they do not share a receive queue. Throws VerbsError.
  Domain* for_prepared(const Settings& settings);
  /// Why a connection with isolation=window cannot be made.
  Failure no_windows() const;
  /// The device refused to bind a key for the only user of this domain: the user keeps the domain
  /// to itself, and new connections get domains of their own. Throws std::bad_alloc.
  void give_up_binding(Domain& domain);
  /// Keys that were kept for future connections may be freed.
  void drop_ready_keys() noexcept;
  /// Frees one block of unused memory; a slow call. False: there is none.
  bool give_back_one() noexcept;
  /// The device closes: domains that connections still use leave it.
  void leave_device() noexcept;

  /// Null if the connections share no receives.
  ReceiveQueue* shared_receives() const noexcept {
    return shared_ ? shared_->shared_receives() : nullptr;
  }
  std::uint32_t shared_depth() const noexcept;
  /// Requests an event for when few shared receives are left.
  void arm_shortage_event() noexcept;

  /// Periodic: frees what was not needed for a while.
  void tick(ae::TimePoint now) noexcept;
  bool at_rest() const noexcept;

 private:
  bool binds(const Settings& settings) const;
  /// The shared domain of the kind that `bind` says; created on first use.
  std::shared_ptr<Domain>& common(const Settings& settings, bool bind);

  Device& device_;
  PagePool& pages_;
  std::shared_ptr<Domain> shared_;
  std::shared_ptr<Domain> second_;  // for the other kind of isolation; without an SRQ
};

}}}  // namespace conn::rdma
