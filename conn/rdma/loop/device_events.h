// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Handles the asynchronous events of a device: failures of queue pairs and of the device, ports
// that go down, changed addresses, a shortage of shared receives. Passes each event to the owners
// of the queue pairs that it concerns. A device that counts as lost (removed or failed) stays lost.

#include <array>
#include <utility>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/device/device.h"
#include "conn/rdma/loop/completion_polling.h"
#include "conn/rdma/loop/domains.h"
#include "conn/rdma/loop/queue_pair_users.h"
#include "conn/rdma/loop/statistics.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class DeviceEvents {
 public:
  /// All arguments must outlive this object.
  DeviceEvents(Device& device, QueuePairUsers& users, Domains& domains,
               CompletionPolling& completions, ContextCounters& counters) noexcept
      : device_(device),
        users_(users),
        domains_(domains),
        completions_(completions),
        counters_(counters) {}

  /// Returns true if the device was removed or has failed. A lost device gets no new connections.
  bool lost() const noexcept { return lost_; }
  void set_lost() noexcept { lost_ = true; }
  /// Reads up to 64 pending events of the device and handles them.
  void take() noexcept;
  /// Returns true if the device's addresses have changed since the last call.
  bool take_address_change() noexcept { return std::exchange(address_change_, false); }
  /// Call it periodically. Tries again to tell the owners of queue pairs of changed addresses, if
  /// that failed for lack of memory.
  void tick() noexcept {
    if (addresses_changed_) look_at_addresses();
  }
  /// Call it periodically while a port is down. Queries that port again, and tells the owners of
  /// all queue pairs for how long it has been down.
  void tell_of_ports(ae::TimePoint now) noexcept;
  /// Returns true if no port is down, and all owners of queue pairs have been told of changed
  /// addresses.
  bool at_rest() const noexcept {
    return !device_.any_port_down() && !addresses_changed_ && !address_change_;
  }

 private:
  void look_at_addresses() noexcept;
  void handle(ibv_event_type type, QueuePairUser* user, int port);

  Device& device_;
  QueuePairUsers& users_;
  Domains& domains_;
  CompletionPolling& completions_;
  ContextCounters& counters_;
  bool lost_ = false;
  // True if addresses have changed and the owners of queue pairs could not be told yet.
  bool addresses_changed_ = false;
  bool address_change_ = false;  // addresses changed since the last take_address_change()
  std::array<ae::TimePoint, Device::kPorts> port_down_since_{};
};

}}}  // namespace conn::rdma
