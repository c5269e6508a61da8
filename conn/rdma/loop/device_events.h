// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The asynchronous events of a device: failures of queue pairs and of the device, ports that go
// down, changed addresses, a shortage of shared receives. Each event is passed to the owners of the
// queue pairs that it concerns. Once the device counts as lost (removed or failed), it stays lost.

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

  /// True if the device was removed or has failed, so that it gets no new connections.
  bool lost() const noexcept { return lost_; }
  void set_lost() noexcept { lost_ = true; }
  /// Reads up to 64 pending events of the device and handles them.
  void take() noexcept;
  /// Returns true if addresses of the device have come or gone since the last call.
  bool take_address_change() noexcept { return std::exchange(address_change_, false); }
  /// Call it periodically. If there was no memory to notify the owners of queue pairs of changed
  /// addresses, tries again.
  void tick() noexcept {
    if (addresses_changed_) look_at_addresses();
  }
  /// Call it periodically while a port is down. Queries that port again, and tells all owners of
  /// queue pairs for how long it has been down.
  void tell_of_ports(ae::TimePoint now) noexcept;
  /// True if no port is down, and everybody has been notified of changed addresses.
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
  // Addresses have changed, but the owners of queue pairs could not be notified yet.
  bool addresses_changed_ = false;
  bool address_change_ = false;  // what take_address_change() returns
  std::array<ae::TimePoint, Device::kPorts> port_down_since_{};
};

}}}  // namespace conn::rdma
