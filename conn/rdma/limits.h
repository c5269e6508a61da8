// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What rdma connections take of limited things, and which limits there are: an estimate from the
// options alone, compared in tests with what the simulation counts.

#include <cstdint>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "conn/capacity.h"
#include "conn/rdma/device/device.h"
#include "conn/rdma/device/functions.h"
#include "conn/rdma/settings.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// What a device makes of a connection.
struct DeviceTraits {
  bool binds_keys = false;      ///< windows of one region, with keys of their own
  bool region_each = false;     ///< each window is a region (Soft-RoCE)
  bool shares_receives = true;  ///< one receive queue for all
  std::uint64_t max_cqe = 65535;
};

/// Of connections that stand with their first windows and nothing under way.
struct Need {
  std::uint64_t queue_pairs = 0, completion_queues = 0, regions = 0, keys = 0, domains = 0;
  std::uint64_t objects = 0;  ///< of the device, all together, as the rdma cgroup counts them
  std::uint64_t locked = 0;   ///< bytes
  std::uint64_t mappings = 0;
};
Need need_of(std::uint64_t connections, const Settings& settings, const DeviceTraits& traits);

/// One limit before it is known what is needed of it.
struct Limit {
  std::string name;
  std::uint64_t most = 0, used = 0;
  std::uint64_t Need::*what = nullptr;
  bool bytes = false;
  std::string raise;  ///< "{}" stands for what would be enough
};

/// Where the kernel tells; others for tests.
struct LimitSources {
  std::string proc = "/proc";
  std::string cgroups = "/sys/fs/cgroup";
};
/// Those of the process: locked memory, mappings, and of the device `name` in the rdma cgroup;
/// without those that limit nothing.
std::vector<Limit> process_limits(const std::string& name, const LimitSources& from = {});
/// Those of the device.
std::vector<Limit> device_limits(const std::string& name, const ibv_device_attr& device);

/// What each leaves room for.
Capacity capacity_of(const Limit& limit, std::uint64_t connections, const Settings& settings,
                     const DeviceTraits& traits);

/// All of them, of connections on a device.
std::vector<Capacity> capacities(const Device& device, std::uint64_t connections,
                                 const Settings& settings);
/// The sentence of the limit that is met first, to put after an error; "" where none is near, or
/// the error has nothing to do with limits.
/// Any thread. `device`: null where it could not be opened.
std::string limit_words(int err, const std::string& name, const Device* device,
                        const Settings& settings);

}}}  // namespace conn::rdma
