// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The devices that one loop uses: a DeviceContext for each, whose descriptors the loop watches from
// the moment it is in the list until it leaves it. A lost DeviceContext gets no new connections; it
// leaves the list, and its device is closed, when nothing on it is in use any more.

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/rdma/device/cm.h"
#include "conn/rdma/loop/device_context.h"
#include "conn/rdma/loop/iteration_budget.h"
#include "conn/rdma/loop/port_watch.h"
#include "conn/rdma/loop/watched_devices.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class Devices {
 public:
  /// Borrows both.
  Devices(ae::EventLoop& loop, CmChannel& channel) : loop_(loop), watches_(channel) {}

  /// The loop's context for the device `id` is bound to. Throws VerbsError.
  std::shared_ptr<DeviceContext> context(const CmId& id, const Settings& settings);
  const std::vector<std::shared_ptr<DeviceContext>>& contexts() const noexcept { return contexts_; }
  /// Counters of destroyed contexts, by device, so that statistics never decrease.
  const std::map<std::string, ContextCounters>& counted_before() const noexcept {
    return counted_before_;
  }
  /// Queue pairs prepared on all devices.
  std::size_t prepared() const noexcept;
  /// See WatchedDevices.
  void watch_removal(const CmId& id) { watches_.watch(id); }
  /// If a port is down, queries it periodically until it is up. Throws std::bad_alloc.
  void watch_ports() { port_watch_.start(); }

  // --- completions and events ---
  /// Takes a limited number of completions from queues that are not armed. True: there may be more.
  bool poll();
  /// Takes a limited number of completions from all queues; returns how many.
  std::size_t poll_now();
  /// Takes all completions that are there.
  void drain();
  /// Arms all queues. False: completions arrived in between.
  bool arm();
  /// Waits until `fd` or a descriptor of a device has an event, or for `limit`; takes the events of
  /// the devices.
  void wait(int fd, ae::Duration limit);
  /// An event of rdma_cm arrived for an id without an owner.
  void on_event_of_nobody(const CmEvent& event) noexcept;
  /// The device of this handle of librdmacm's was removed.
  void on_removed(ibv_context* cm_handle);

  // --- what is not needed any more ---
  /// There is something for release_parked() or drop_lost(). Called several times in each
  /// iteration, and hardly ever true.
  bool has_to_clear() const noexcept {
    for (const auto& context : contexts_)
      if (context->lost() || context->has_parked()) return has_parked_to_release() || has_lost();
    return false;
  }
  /// Destroys parked ids, for which `iteration` has time if `most` says so.
  void release_parked(IterationBudget& iteration, IterationBudget::Most most);
  /// Closes lost devices that are not in use. Freeing what many connections left behind may take
  /// several iterations.
  void drop_lost(IterationBudget& iteration);
  /// Closes devices that are not in use.
  void drop_idle();
  /// drop_idle(), and frees memory kept for future connections.
  void give_back_what_is_idle();
  /// Periodic work of all contexts. True: more is left, which is to be done soon.
  bool tick(ae::TimePoint now);
  /// tick() has nothing to do until a new connection arrives.
  bool at_rest() const noexcept;
  /// The loop does not watch the devices any more.
  void leave_loop() noexcept;
  /// The loop ends: ids that would block it move to `to`.
  void give_up_parked(Orphans& to) noexcept;

 private:
  // Contexts may be added or removed meanwhile.
  template <class Visit>
  void each(const Visit& visit) {
    // NOLINTNEXTLINE(modernize-loop-convert): the list may change meanwhile
    for (std::size_t i = 0; i < contexts_.size(); ++i) visit(*contexts_[i]);
  }
  static bool may_go(const std::shared_ptr<DeviceContext>& context) noexcept {
    return context->lost() && !context->has_parked() && context.use_count() == 1;
  }
  bool has_parked_to_release() const noexcept;
  bool has_lost() const noexcept;
  void watch(DeviceContext& context);
  void unwatch(DeviceContext& context);

  ae::EventLoop& loop_;
  PagePool pages_;  // outlives the contexts
  std::vector<std::shared_ptr<DeviceContext>> contexts_;
  std::map<std::string, ContextCounters> counted_before_;
  WatchedDevices watches_;
  PortWatch port_watch_{loop_, contexts_};
};

}}}  // namespace conn::rdma
