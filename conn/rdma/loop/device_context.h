// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What one loop shares on one device: its own device handle, and on it the owners of queue pairs,
// the protection domains, the completions, the device's events, prepared queue pairs and ids that
// cannot be destroyed yet, each a part with a header of its own. DeviceContext creates the parts,
// destroys them in the right order, and does what concerns several of them.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "ae/abi.h"
#include "conn/rdma/config/settings.h"
#include "conn/rdma/device/cm.h"
#include "conn/rdma/device/device.h"
#include "conn/rdma/loop/completion_polling.h"
#include "conn/rdma/loop/device_events.h"
#include "conn/rdma/loop/domains.h"
#include "conn/rdma/loop/parked_ids.h"
#include "conn/rdma/loop/queue_pair_users.h"
#include "conn/rdma/loop/statistics.h"
#include "conn/rdma/memory/prepared_queue_pairs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class DeviceContext {
 public:
  /// Opens the device. Borrows `pages`. `loop`: index in the listener group. Throws VerbsError.
  DeviceContext(ibv_device* device, const Settings& settings, PagePool& pages,
                std::optional<std::size_t> loop);
  ~DeviceContext();

  Device& device() noexcept { return device_; }
  const Device& device() const noexcept { return device_; }
  const std::string& name() const noexcept { return device_.name(); }
  CompletionPolling& completions() noexcept { return completions_; }
  /// The device was removed or failed: no new connections on it.
  bool lost() const noexcept { return events_.lost(); }
  void set_lost() noexcept { events_.set_lost(); }

  // --- ids that cannot be destroyed yet: the kernel would block the loop ---
  void park(CmId id) noexcept { parked_.park(std::move(id)); }
  void park_connecting(CmId id) noexcept { parked_.park_connecting(std::move(id)); }
  bool has_parked() const noexcept { return !parked_.empty(); }
  bool full_of_parked() const noexcept { return parked_.full(); }
  bool may_release_parked() const noexcept { return parked_.may_release(ports_that_matter()); }
  void release_one_parked() noexcept { parked_.release_one(ports_that_matter()); }
  /// The loop ends: ids that would block it move to `to`.
  void give_up_parked(Orphans& to) noexcept;
  /// An event arrived for an id without an owner.
  void on_event_of_nobody(const CmEvent& event) noexcept { parked_.on_event(event); }

  // --- domains, and queue pairs prepared in them ---
  /// The protection domain for a new connection. Throws VerbsError.
  std::shared_ptr<Domain> domain(const Settings& settings, std::uint32_t own_receives) {
    return domains_.for_connection(settings, own_receives);
  }
  /// Why a connection with isolation=window cannot be made.
  Failure no_windows() const { return domains_.no_windows(); }
  /// The device refused to bind a key for the only user of this domain. Throws std::bad_alloc.
  void give_up_binding(Domain& domain);
  /// Frees one block of unused memory; a slow call. False: there is none.
  bool give_back_one() noexcept { return prepared_.drop_one() || domains_.give_back_one(); }
  /// Prepares one queue pair, key and first window for connections with these settings, up to
  /// settings.prepared. True: more are to be made. None are made where connections do not share a
  /// receive queue. Throws VerbsError or std::bad_alloc.
  bool prepare_one(const Settings& settings);
  std::optional<PreparedQueuePair> take_prepared(const QueuePairShape& shape) noexcept {
    return prepared_.take(shape);
  }
  /// Drops one prepared queue pair that is not needed any more. False: there is none.
  bool drop_one_prepared() noexcept;
  std::size_t prepared() const noexcept { return prepared_.size(); }

  // --- queue pairs and what arrives for them ---
  /// Throws VerbsError if no completion queue of that depth is available.
  CqLease lease(std::uint32_t entries) { return completions_.lease(entries); }
  /// Also reserves capacity to park the id later.
  void attach(std::uint32_t qp_number, QueuePairUser* user);
  void detach(std::uint32_t qp_number) noexcept { users_.remove(qp_number); }
  std::size_t queue_pairs() const noexcept { return users_.size(); }
  std::size_t completion_queues() const noexcept { return completions_.queues(); }
  /// Polls one queue until everything that was in it at the call is taken.
  void drain(CompletionQueue& queue) { completions_.drain(queue); }
  /// Reads asynchronous events of the device.
  void on_async_event() noexcept { events_.take(); }

  /// Periodic: reposts shared receives that wait for a batch or were lost, frees unused resources.
  void tick(ae::TimePoint now) noexcept;
  /// Periodic while a port is down: queries it again and notifies the users on it.
  void tell_of_ports(ae::TimePoint now) noexcept { events_.tell_of_ports(now); }
  /// tick() has nothing to do until a new connection arrives.
  bool at_rest() const noexcept {
    return domains_.at_rest() && completions_.at_rest() && events_.at_rest();
  }
  const ContextCounters& counters() const noexcept { return counters_; }

 private:
  /// See ParkedIds::may_release().
  const Device* ports_that_matter() const noexcept {
    return lost() || !device_.any_port_down() ? nullptr : &device_;
  }

  ContextCounters counters_;
  Device device_;  // destroyed after what is made on it
  ParkedIds parked_;
  QueuePairUsers users_;
  Domains domains_;
  CompletionPolling completions_;
  PreparedQueuePairs prepared_;
  DeviceEvents events_;
};

}}}  // namespace conn::rdma
