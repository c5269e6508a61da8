// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Reads the kernel's counters of a device's ports, /sys/class/infiniband/DEV/ports/N/counters and
// hw_counters, and returns how much they have increased since the process first used the device.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// The port counters of one device. For use by one thread at a time.
class PortCounters {
 public:
  /// Reads the initial values. `folder` is the device's directory, such as
  /// /sys/class/infiniband/mlx5_0. If the directory does not exist, there are no counters.
  explicit PortCounters(std::string folder);
  /// Reads the kernel's files and returns the name of each counter and its increase since
  /// construction. Names are such as "port1_rcv_packets" (from the directory counters) and
  /// "port1_hw_sent_pkts" (from hw_counters). A returned value never decreases: if the kernel's
  /// counter was reset or the device was removed for some time, the value continues from its last
  /// value.
  std::vector<std::pair<std::string, std::uint64_t>> read();

 private:
  std::map<std::string, std::uint64_t> read_all() const;
  struct Counted {
    std::uint64_t last = 0;   ///< value that the kernel reported last
    std::uint64_t added = 0;  ///< total increase of the counter until `last` was read
  };
  std::string folder_;
  std::map<std::string, Counted> counted_;
};

/// Reads and stores the initial counters of this device, unless the process has done so before.
/// Does nothing if there is no memory for them. Thread-safe.
void begin_port_counters(const std::string& device) noexcept;
/// Returns PortCounters::read() for a device that was passed to begin_port_counters() before; empty
/// for other devices. Thread-safe.
std::vector<std::pair<std::string, std::uint64_t>> port_counters(const std::string& device);

}}}  // namespace conn::rdma
