// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The list of the devices that one loop uses, with a DeviceContext (what connections share on the
// device) for each. While it is in the list, the loop watches its file descriptors. A lost
// DeviceContext (its device was removed or has failed) gets no new connections; it is removed from
// the list, and its device is closed, when nothing on it is in use any more.

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
#include "conn/rdma/loop/listeners.h"
#include "conn/rdma/loop/port_watch.h"
#include "conn/rdma/loop/watched_devices.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class Devices {
 public:
  /// All arguments must outlive this object.
  Devices(ae::EventLoop& loop, CmChannel& channel, LoopListeners& listeners)
      : loop_(loop), watches_(channel), listeners_(listeners) {}

  /// Returns the DeviceContext for the device that `id` is bound to; creates it if necessary.
  /// Throws VerbsError if the device cannot be opened or settings.device excludes it.
  std::shared_ptr<DeviceContext> context(const CmId& id, const Settings& settings);
  const std::vector<std::shared_ptr<DeviceContext>>& contexts() const noexcept { return contexts_; }
  /// Returns the sums of the counters of devices that this loop has closed, by device name.
  /// Statistics add them to the present counters, so that the totals never decrease.
  const std::map<std::string, ContextCounters>& counted_before() const noexcept {
    return counted_before_;
  }
  /// Returns the numbers of registrations of memory so far, on all devices together.
  const RegistrationCounts& registrations() const noexcept { return pages_.registrations(); }
  /// Returns the number of queue pairs created in advance for future connections, on all devices.
  std::size_t prepared() const noexcept;
  /// If `id` is bound to a device, watches that device for removal from now on.
  void watch_removal(const CmId& id) { watches_.watch(id); }
  /// If a port of a device is down, queries it periodically until it is up. Throws std::bad_alloc.
  void watch_ports() { port_watch_.start(); }

  // --- completions and events of the devices -----------------------------------------------------
  /// Takes a limited number of completions from the completion queues that are not armed (have
  /// requested no event). Returns true if the queues may contain more.
  bool poll() { return only_ != nullptr ? only_->poll() : poll_all(); }
  /// Takes a limited number of completions from the completion queues that are not armed, on all
  /// devices. Returns their number.
  std::size_t poll_now();
  /// Takes all completions that are in the completion queues of all devices.
  void drain();
  /// Arms all completion queues (requests events for their next completions), and polls them once
  /// more. Returns false if that found completions, so that the loop must not sleep.
  bool arm() { return only_ != nullptr ? only_->arm() : arm_all(); }
  /// Blocks until `fd` or a descriptor of a device is readable, at most for `limit`. Then takes the
  /// events of the devices.
  void wait(int fd, ae::Duration limit);
  /// Handles an rdma_cm event of an id that has no owner: passes it to the DeviceContexts, one of
  /// which may have kept the id because it could not be destroyed before this event.
  void on_event_of_nobody(const CmEvent& event) noexcept;
  /// Makes a device that was removed count as lost, and makes librdmacm close it. `cm_handle`:
  /// librdmacm's handle of the device, from the `verbs` of an id.
  void on_removed(ibv_context* cm_handle);

  // --- freeing resources that are not needed any more --------------------------------------------
  /// Returns true if an rdma_cm id or a lost device can be released now, by release_parked() or
  /// drop_lost(). Called several times in each iteration, so the usual case, false, is fast.
  bool has_to_clear() const noexcept {
    if (!to_clear_) return false;
    for (const auto& context : contexts_)
      if (context->lost() || context->has_parked()) return has_parked_to_release() || has_lost();
    return false;
  }
  /// Destroys those parked ids (rdma_cm ids that could not be destroyed when their connections
  /// ended) whose destruction does not block. With Most::kShare, stops when the iteration's time
  /// for such work is used up.
  void release_parked(IterationBudget& iteration, IterationBudget::Most most);
  /// Closes lost devices that are no longer in use. If many connections have used a device, freeing
  /// its memory may take several iterations.
  void drop_lost(IterationBudget& iteration);
  /// Updates the flag with which has_to_clear() quickly returns false; call it after
  /// release_parked() and drop_lost().
  void look_if_clear() noexcept;
  /// Closes all devices that are not in use.
  void drop_idle();
  /// Closes all devices that are not in use (drop_idle()), and frees memory kept for future
  /// connections.
  void give_back_what_is_idle();
  /// Does the periodic work for all devices, such as freeing unused resources. Returns true if a
  /// part of the work remains: call tick() again soon.
  bool tick(ae::TimePoint now);
  /// Returns true if tick() has nothing to do until a new connection arrives.
  bool at_rest() const noexcept;
  /// Makes the loop stop watching the devices.
  void leave_loop() noexcept;
  /// Call it before the loop is destroyed: moves those rdma_cm ids to `to` whose destruction would
  /// block.
  void give_up_parked(Orphans& to) noexcept;

 private:
  // Calls `visit` for each DeviceContext. `visit` may add or remove DeviceContexts.
  template <class Visit>
  void each(const Visit& visit) {
    // NOLINTNEXTLINE(modernize-loop-convert): `visit` may change the list
    for (std::size_t i = 0; i < contexts_.size(); ++i) visit(*contexts_[i]);
  }
  static bool may_go(const std::shared_ptr<DeviceContext>& context) noexcept {
    return context->lost() && !context->has_parked() && context.use_count() == 1;
  }
  bool poll_all();
  bool arm_all();
  bool has_parked_to_release() const noexcept;
  bool has_lost() const noexcept;
  // Updates only_, a shortcut for loops with a single device; call it when contexts_ has changed.
  void look_for_only() noexcept {
    only_ = contexts_.size() == 1 ? &contexts_.front()->completions() : nullptr;
  }
  void watch(DeviceContext& context);
  void unwatch(DeviceContext& context);
  void on_async_event(DeviceContext& context) noexcept;
  void tell_of_addresses(DeviceContext& context) noexcept;

  ae::EventLoop& loop_;
  // The loop's memory, which the DeviceContexts register with their devices; must outlive
  // contexts_.
  PagePool pages_;
  // True if a device may be lost, or may have "parked" rdma_cm ids (to be destroyed later): then
  // has_to_clear() checks all devices.
  bool to_clear_ = false;
  std::vector<std::shared_ptr<DeviceContext>> contexts_;
  // If exactly one device is in use, the polling of its completion queues; otherwise null.
  CompletionPolling* only_ = nullptr;
  std::map<std::string, ContextCounters> counted_before_;
  WatchedDevices watches_;
  LoopListeners& listeners_;
  PortWatch port_watch_{loop_, contexts_};
};

}}}  // namespace conn::rdma
