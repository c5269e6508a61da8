// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a device reports besides completions: failures of queue pairs and of the device, ports that
// go down, changed addresses, few shared receives. Each event is passed to the owners it concerns.
// Once the device is lost it stays lost.

#include <array>

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
  /// Borrows all of them.
  DeviceEvents(Device& device, QueuePairUsers& users, Domains& domains,
               CompletionPolling& completions, ContextCounters& counters) noexcept
      : device_(device),
        users_(users),
        domains_(domains),
        completions_(completions),
        counters_(counters) {}

  /// The device was removed or failed: no new connections on it.
  bool lost() const noexcept { return lost_; }
  void set_lost() noexcept { lost_ = true; }
  /// Reads asynchronous events of the device.
  void take() noexcept;
  /// Periodic: notifies users of changed addresses if there was no memory for it before.
  void tick() noexcept {
    if (addresses_changed_) look_at_addresses();
  }
  /// Periodic while a port is down: queries it again and notifies the users.
  void tell_of_ports(ae::TimePoint now) noexcept;
  /// No port is down, and the users know of all changed addresses.
  bool at_rest() const noexcept { return !device_.any_port_down() && !addresses_changed_; }

 private:
  void look_at_addresses() noexcept;
  void handle(ibv_event_type type, QueuePairUser* user, int port);

  Device& device_;
  QueuePairUsers& users_;
  Domains& domains_;
  CompletionPolling& completions_;
  ContextCounters& counters_;
  bool lost_ = false;
  bool addresses_changed_ = false;  // but users could not be notified yet
  std::array<ae::TimePoint, Device::kPorts> port_down_since_{};
};

}}}  // namespace conn::rdma
