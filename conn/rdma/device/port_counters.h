// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Reads the kernel's counters of a device's ports, /sys/class/infiniband/DEV/ports/N/counters and
// hw_counters, as differences from when the device was first used.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// The counters of one device. For use by one thread.
class PortCounters {
 public:
  /// Reads the initial values. `folder` is the device's directory: /sys/class/infiniband/mlx5_0. A
  /// directory that does not exist has no counters.
  explicit PortCounters(std::string folder);
  /// Increases since then, by name: "port1_rcv_packets" of counters, "port1_hw_sent_pkts" of
  /// hw_counters. Reads files. A value never decreases: a counter that was reset, or whose device
  /// was away, continues from where it was.
  std::vector<std::pair<std::string, std::uint64_t>> read();

 private:
  std::map<std::string, std::uint64_t> read_all() const;
  struct Counted {
    std::uint64_t last = 0;   ///< last value that the kernel showed
    std::uint64_t added = 0;  ///< total increase up to then
  };
  std::string folder_;
  std::map<std::string, Counted> counted_;
};

/// Records the initial counters of this device, unless the process has used it before. Any thread;
/// a repeated call reads no files. Without memory it does nothing.
void begin_port_counters(const std::string& device) noexcept;
/// PortCounters::read() of a device given to begin_port_counters(); empty for others. Any thread.
std::vector<std::pair<std::string, std::uint64_t>> port_counters(const std::string& device);

}}}  // namespace conn::rdma
