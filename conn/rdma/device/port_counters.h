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
  /// /sys/class/infiniband/mlx5_0. If it does not exist, there are no counters.
  explicit PortCounters(std::string folder);
  /// Returns the name and the increase since construction of each counter: "port1_rcv_packets" from
  /// the directory counters, "port1_hw_sent_pkts" from hw_counters. Reads files. A returned value
  /// never decreases: if a counter was reset, or its device was away, it continues from its last
  /// value.
  std::vector<std::pair<std::string, std::uint64_t>> read();

 private:
  std::map<std::string, std::uint64_t> read_all() const;
  struct Counted {
    std::uint64_t last = 0;   ///< value of the counter that the kernel reported last
    std::uint64_t added = 0;  ///< total increase of the counter up to the value in `last`
  };
  std::string folder_;
  std::map<std::string, Counted> counted_;
};

/// Records the initial counters of this device, unless the process has done so before; then it
/// reads no files. Does nothing if there is no memory for them. Thread-safe.
void begin_port_counters(const std::string& device) noexcept;
/// Returns the increases that PortCounters::read() reports for a device that was given to
/// begin_port_counters(); empty for other devices. Thread-safe.
std::vector<std::pair<std::string, std::uint64_t>> port_counters(const std::string& device);

}}}  // namespace conn::rdma
