// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the kernel shows of a device's ports: /sys/class/infiniband/DEV/ports/N/counters and
// hw_counters, as differences from when the device was first used.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// The counters of one device. Of one thread.
class PortCounters {
 public:
  /// Reads them. `folder` is the device's: /sys/class/infiniband/mlx5_0. One that is not there has
  /// no counters.
  explicit PortCounters(std::string folder);
  /// What was added since, by name: "port1_rcv_packets" of counters, "port1_hw_sent_pkts" of
  /// hw_counters. Reads files. Never less than before: a counter that somebody has reset, or whose
  /// device was away, goes on from where it was.
  std::vector<std::pair<std::string, std::uint64_t>> read();

 private:
  std::map<std::string, std::uint64_t> read_all() const;
  struct Counted {
    std::uint64_t last = 0;   ///< as the kernel showed it
    std::uint64_t added = 0;  ///< before that
  };
  std::string folder_;
  std::map<std::string, Counted> counted_;
};

/// Notes the counters of this device, unless the process has used it before. Any thread; costs
/// nothing the second time. Without memory it does nothing.
void begin_port_counters(const std::string& device) noexcept;
/// PortCounters::read() of a device that was begun; empty for others. Any thread.
std::vector<std::pair<std::string, std::uint64_t>> port_counters(const std::string& device);

}}}  // namespace conn::rdma
