// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the connections of one loop share on one device: the loop's own device handle, the owners of
// queue pairs, the protection domains, the completions, the device's events, queue pairs created in
// advance, and rdma_cm ids that cannot be destroyed yet. Each is a separate class with its own
// header. DeviceContext creates these objects, destroys them in the right order, and does what
// concerns several of them.

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
  /// Opens the device. `pages`, which must outlive this object: pool of the loop's memory. `loop`:
  /// the loop's index in its listener group, if it is in one. `to_clear`, which must outlive this
  /// object: a flag that is set when lost() or has_parked() may have become true. Throws
  /// VerbsError.
  DeviceContext(ibv_device* device, const Settings& settings, PagePool& pages,
                std::optional<std::size_t> loop, bool& to_clear);
  ~DeviceContext();

  Device& device() noexcept { return device_; }
  const Device& device() const noexcept { return device_; }
  const std::string& name() const noexcept { return device_.name(); }
  CompletionPolling& completions() noexcept { return completions_; }
  /// Returns true if the device was removed or has failed. A lost device gets no new connections.
  bool lost() const noexcept { return events_.lost(); }
  void set_lost() noexcept {
    events_.set_lost();
    to_clear_ = true;
  }

  // --- "parked" rdma_cm ids: destroying them now would block the loop ----------------------------
  void park(CmId id) noexcept {
    parked_.park(std::move(id));
    to_clear_ = true;
  }
  void park_connecting(CmId id) noexcept {
    parked_.park_connecting(std::move(id));
    to_clear_ = true;
  }
  bool has_parked() const noexcept { return !parked_.empty(); }
  bool full_of_parked() const noexcept { return parked_.full(); }
  bool may_release_parked() const noexcept { return parked_.may_release(ports_that_matter()); }
  void release_one_parked() noexcept { parked_.release_one(ports_that_matter()); }
  /// Call it before the loop is destroyed: moves those rdma_cm ids to `to` whose destruction would
  /// block.
  void give_up_parked(Orphans& to) noexcept;
  /// Handles an rdma_cm event of an id that has no owner: if it ends the connect of an id that is
  /// kept here until then, destroys that id.
  void on_event_of_nobody(const CmEvent& event) noexcept { parked_.on_event(event); }

  // --- protection domains, and queue pairs created in them in advance ----------------------------
  /// Returns the protection domain for a new connection. `own_receives`: number of receives, used
  /// if the connection gets its own domain. `may_bind`: false if the connection must not bind keys
  /// (memory windows). Throws VerbsError.
  std::shared_ptr<Domain> domain(const Settings& settings, std::uint32_t own_receives,
                                 bool may_bind) {
    return domains_.for_connection(settings, own_receives, may_bind);
  }
  /// Returns the error that a connection with the option isolation=window gets if the device has no
  /// usable memory windows.
  Failure no_windows() const { return domains_.no_windows(); }
  /// Stops binding keys on this device from now on, because it has refused to bind one in `domain`,
  /// which only one connection uses. Throws std::bad_alloc.
  void give_up_binding(Domain& domain);
  /// Frees one queue pair that was created in advance, or one slab (large piece) of unused
  /// registered memory; this is a slow call. Returns false if there is neither.
  bool give_back_one() noexcept { return prepared_.drop_one() || domains_.give_back_one(); }
  /// Creates one queue pair, its key and memory for its first receive window in advance, for a
  /// future connection with these settings, unless settings.prepared of them exist already. Returns
  /// true if more must be created. Creates none if such connections do not share a receive queue.
  /// Throws VerbsError or std::bad_alloc.
  bool prepare_one(const Settings& settings);
  std::optional<PreparedQueuePair> take_prepared(const QueuePairShape& shape) noexcept {
    return prepared_.take(shape);
  }
  /// Destroys one queue pair that was created in advance, and lets tick() free the keys (memory
  /// windows) kept for such queue pairs. Returns false if there is no such queue pair.
  bool drop_one_prepared() noexcept;
  std::size_t prepared() const noexcept { return prepared_.size(); }

  // --- queue pairs, their completions and the device's events ---
  /// Reserves `entries` entries of a completion queue. Throws VerbsError if no queue has so many
  /// free entries and none can be created.
  CqLease lease(std::uint32_t entries) { return completions_.lease(entries); }
  /// Registers `user` as the owner of a queue pair, and reserves capacity so that the connection's
  /// rdma_cm id can later be kept here without allocating memory. Throws std::bad_alloc.
  void attach(std::uint32_t qp_number, QueuePairUser* user);
  void detach(std::uint32_t qp_number) noexcept { users_.remove(qp_number); }
  std::size_t queue_pairs() const noexcept { return users_.size(); }
  std::size_t completion_queues() const noexcept { return completions_.queues(); }
  /// Polls one queue until all completions that were in it at the call are taken.
  void drain(CompletionQueue& queue) { completions_.drain(queue); }
  /// Reads the device's asynchronous events and passes them to the owners of the queue pairs that
  /// they concern.
  void on_async_event() noexcept {
    events_.take();
    if (lost()) to_clear_ = true;
  }
  /// Returns true if the device's addresses have changed since the last call.
  bool take_address_change() noexcept { return events_.take_address_change(); }

  /// Call it about once a second. Posts all shared receives that are not posted, including lost
  /// ones, and frees resources that have been unused for some time.
  void tick(ae::TimePoint now) noexcept;
  /// Call it periodically while a port is down. Queries that port again, and tells the owners of
  /// all queue pairs for how long it has been down.
  void tell_of_ports(ae::TimePoint now) noexcept { events_.tell_of_ports(now); }
  /// Returns true if tick() has nothing to do until a new connection arrives.
  bool at_rest() const noexcept {
    return domains_.at_rest() && completions_.at_rest() && events_.at_rest();
  }
  const ContextCounters& counters() const noexcept { return counters_; }

 private:
  /// Returns the device if some of its ports are down, so that rdma_cm ids of these ports must stay
  /// "parked": destroying them would block. Returns null if all of them can be destroyed: all ports
  /// are up, or the device is lost.
  const Device* ports_that_matter() const noexcept {
    return lost() || !device_.any_port_down() ? nullptr : &device_;
  }

  bool& to_clear_;
  ContextCounters counters_;
  // The opened device; declared first, because the objects below use it until they are destroyed.
  Device device_;
  ParkedIds parked_;
  QueuePairUsers users_;
  Domains domains_;
  CompletionPolling completions_;
  PreparedQueuePairs prepared_;
  DeviceEvents events_;
};

}}}  // namespace conn::rdma
