// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Resources that rdma connections need, and the limits on them. The need is estimated from the
// options alone; tests compare it with what the simulation counts.

#include <cstdint>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "conn/capacity.h"
#include "conn/rdma/config/settings.h"
#include "conn/rdma/device/device.h"
#include "conn/rdma/device/functions.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Properties of a device that determine what a connection needs.
struct DeviceTraits {
  bool binds_keys = false;      ///< windows share a region, each with a key of its own
  bool region_each = false;     ///< each window is a region of its own (Soft-RoCE)
  bool shares_receives = true;  ///< one receive queue for all connections
  std::uint64_t max_cqe = 65535;
};

/// What established connections need, with their first windows and no data in flight.
struct Need {
  std::uint64_t queue_pairs = 0, completion_queues = 0, regions = 0, keys = 0, domains = 0;
  std::uint64_t objects = 0;  ///< device objects of all kinds, as the rdma cgroup counts them
  std::uint64_t locked = 0;   ///< bytes
  std::uint64_t mappings = 0;
};
Need need_of(std::uint64_t connections, const Settings& settings, const DeviceTraits& traits);

/// One limit, before the need is known.
struct Limit {
  std::string name;
  std::uint64_t most = 0, used = 0;
  std::uint64_t Need::*what = nullptr;
  bool bytes = false;
  std::string raise;  ///< how to raise it; "{}" is replaced by a sufficient value
};

/// Where the kernel publishes limits; tests use other paths.
struct LimitSources {
  std::string proc = "/proc";
  std::string cgroups = "/sys/fs/cgroup";
};
/// Limits of the process: locked memory, memory mappings, and the rdma cgroup's limit for device
/// `name`. Leaves out unlimited resources.
std::vector<Limit> process_limits(const std::string& name, const LimitSources& from = {});
/// Limits of the device.
std::vector<Limit> device_limits(const std::string& name, const ibv_device_attr& device);

/// How many connections `limit` allows.
Capacity capacity_of(const Limit& limit, std::uint64_t connections, const Settings& settings,
                     const DeviceTraits& traits);

/// Capacity of a device for `connections`, one entry for each limit.
std::vector<Capacity> capacities(const Device& device, std::uint64_t connections,
                                 const Settings& settings);
/// Sentence about the limit that is reached first, to append to an error message. Empty if no limit
/// is near or the error is unrelated to limits. Any thread. `device`: null if it could not be
/// opened.
std::string limit_words(int err, const std::string& name, const Device* device,
                        const Settings& settings);

}}}  // namespace conn::rdma
