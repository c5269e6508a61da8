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
#include "conn/rdma/loop/listeners.h"
#include "conn/rdma/loop/port_watch.h"
#include "conn/rdma/loop/watched_devices.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class Devices {
 public:
  /// All arguments must outlive this object.
  Devices(ae::EventLoop& loop, CmChannel& channel, LoopListeners& listeners)
      : loop_(loop), watches_(channel), listeners_(listeners) {}

  /// Returns the loop's DeviceContext for the device that `id` is bound to; creates it if
  /// necessary. Throws VerbsError.
  std::shared_ptr<DeviceContext> context(const CmId& id, const Settings& settings);
  const std::vector<std::shared_ptr<DeviceContext>>& contexts() const noexcept { return contexts_; }
  /// Returns the summed counters of destroyed DeviceContexts, by device name. They are added to
  /// those of the present DeviceContext, so that statistics never decrease.
  const std::map<std::string, ContextCounters>& counted_before() const noexcept {
    return counted_before_;
  }
  /// How often memory was registered with a device, on all devices so far.
  const RegistrationCounts& registrations() const noexcept { return pages_.registrations(); }
  /// Number of queue pairs that are prepared for future connections, on all devices.
  std::size_t prepared() const noexcept;
  /// If `id` is bound to a device, watches that device for removal from now on.
  void watch_removal(const CmId& id) { watches_.watch(id); }
  /// If a port of a device is down, queries it periodically until it is up. Throws std::bad_alloc.
  void watch_ports() { port_watch_.start(); }

  // --- completions and events ---
  /// Takes a limited number of completions from the completion queues that are not armed (have
  /// requested no event). Returns true if they may hold more.
  bool poll() { return only_ != nullptr ? only_->poll() : poll_all(); }
  /// Takes a limited number of completions from the completion queues that are not armed, on all
  /// devices. Returns how many.
  std::size_t poll_now();
  /// Takes all completions that are in the completion queues of all devices.
  void drain();
  /// Arms all completion queues (requests events for their next completions). Returns false if
  /// completions arrived in the meantime.
  bool arm() { return only_ != nullptr ? only_->arm() : arm_all(); }
  /// Blocks until `fd` or a descriptor of a device is readable, at most for `limit`, and takes the
  /// events of the devices.
  void wait(int fd, ae::Duration limit);
  /// Passes an rdma_cm event whose id has no owner to the DeviceContexts, which keep the ids that
  /// cannot be destroyed yet.
  void on_event_of_nobody(const CmEvent& event) noexcept;
  /// Call it when a device was removed. `cm_handle` is librdmacm's handle of it, as found in an id.
  void on_removed(ibv_context* cm_handle);

  // --- resources that are not needed any more ---
  /// True if release_parked() or drop_lost() has something to do. This is called several times in
  /// each iteration, and is seldom true.
  bool has_to_clear() const noexcept {
    if (!to_clear_) return false;
    for (const auto& context : contexts_)
      if (context->lost() || context->has_parked()) return has_parked_to_release() || has_lost();
    return false;
  }
  /// Destroys parked ids (rdma_cm ids that could not be destroyed when their connections ended) as
  /// far as that does not block. With Most::kShare, stops when the time that the iteration allows
  /// is used up.
  void release_parked(IterationBudget& iteration, IterationBudget::Most most);
  /// Closes lost devices that are no longer in use. Where many connections left memory behind,
  /// freeing it may take several iterations.
  void drop_lost(IterationBudget& iteration);
  /// Call it after release_parked() and drop_lost(): notes if nothing can be left for them to do.
  void look_if_clear() noexcept;
  /// Closes all devices that are not in use.
  void drop_idle();
  /// Closes all devices that are not in use, and frees memory that is kept for future connections.
  void give_back_what_is_idle();
  /// Does the periodic work of all DeviceContexts. Returns true if part of it remains, for which
  /// tick() should be called again soon.
  bool tick(ae::TimePoint now);
  /// True if tick() has nothing to do until a new connection arrives.
  bool at_rest() const noexcept;
  /// Makes the loop stop watching the devices.
  void leave_loop() noexcept;
  /// Call it when the loop is about to be destroyed: moves the rdma_cm ids whose destruction would
  /// block to `to`.
  void give_up_parked(Orphans& to) noexcept;

 private:
  // Calls `visit` for each DeviceContext; `visit` may add DeviceContexts or remove some.
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
  // Call it when contexts_ has changed.
  void look_for_only() noexcept {
    only_ = contexts_.size() == 1 ? &contexts_.front()->completions() : nullptr;
  }
  void watch(DeviceContext& context);
  void unwatch(DeviceContext& context);
  void on_async_event(DeviceContext& context) noexcept;
  void tell_of_addresses(DeviceContext& context) noexcept;

  ae::EventLoop& loop_;
  PagePool pages_;  // memory that the contexts register with their devices; outlives contexts_
  // False: no context is lost or has parked ids. True: one may.
  bool to_clear_ = false;
  std::vector<std::shared_ptr<DeviceContext>> contexts_;
  // The completions of the context, if there is exactly one; otherwise null.
  CompletionPolling* only_ = nullptr;
  std::map<std::string, ContextCounters> counted_before_;
  WatchedDevices watches_;
  LoopListeners& listeners_;
  PortWatch port_watch_{loop_, contexts_};
};

}}}  // namespace conn::rdma
