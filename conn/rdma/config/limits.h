// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The resources that rdma connections need, and the limits on these resources. The need is
// estimated from the options and a few properties of the device; tests compare the estimate with
// the numbers that the simulation counts.

#include <cstdint>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "conn/capacity.h"
#include "conn/rdma/config/settings.h"
#include "conn/rdma/device/device.h"
#include "conn/rdma/device/functions.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Returns the number of work requests that the send queue of a connection on `device` can hold.
inline std::uint32_t send_queue_of(const Settings& settings, const Device& device) noexcept {
  return device.send_queue_for(settings.send_queue, flow::kLeastSendQueue);
}

/// Properties of an RDMA device that determine how many resources a connection needs.
struct DeviceTraits {
  /// True: several receive windows share a memory region, and each has its own key (a memory
  /// window).
  bool binds_keys = false;
  /// True: each receive window is registered as a separate memory region (soft-RoCE).
  bool region_each = false;
  bool shares_receives = true;  ///< true: all connections of a loop share one receive queue
  std::uint64_t max_cqe = 65535;
};

/// Resources that a number of established connections need, if each has one receive window (memory
/// that the peer writes into) and no data in flight.
struct Need {
  std::uint64_t queue_pairs = 0, completion_queues = 0, regions = 0, keys = 0, domains = 0;
  std::uint64_t objects = 0;  ///< device objects of all kinds, as the rdma cgroup counts them
  /// Bytes of locked (pinned) memory, which cannot be swapped out.
  std::uint64_t locked = 0;
  std::uint64_t mappings = 0;
};
Need need_of(std::uint64_t connections, const Settings& settings, const DeviceTraits& traits);

/// A limit that the kernel or a device sets on one kind of resource, and the amount that is in use
/// now.
struct Limit {
  std::string name;
  std::uint64_t most = 0, used = 0;
  std::uint64_t Need::*what = nullptr;
  bool bytes = false;
  /// Text that says how to raise the limit; "{}" in it is a placeholder for a value that suffices.
  std::string raise;
};

/// Folders in which the kernel publishes limits of processes and cgroups. Tests use folders of
/// their own.
struct LimitSources {
  std::string proc = "/proc";
  std::string cgroups = "/sys/fs/cgroup";
};
/// Returns the limits on the locked memory and on the memory mappings of this process, and those of
/// the rdma cgroup for device `name`. Leaves out resources that are unlimited.
std::vector<Limit> process_limits(const std::string& name, const LimitSources& from = {});
/// Returns the limits of a device: on queue pairs, completion queues, memory regions, memory
/// windows and protection domains.
std::vector<Limit> device_limits(const std::string& name, const ibv_device_attr& device);

/// Returns how many connections `limit` allows, and how much of the limited resource `connections`
/// connections need.
Capacity capacity_of(const Limit& limit, std::uint64_t connections, const Settings& settings,
                     const DeviceTraits& traits);

/// Returns the least number of bytes of locked memory with which one connection can be served: for
/// a receive window, and for the receives for control messages. `device`: null if it is not known
/// yet.
std::uint64_t locked_by_one(const Device* device, const Settings& settings);
/// Returns a sentence that says why a listener can serve no connection, if the limit on locked
/// memory is too low for a single one; otherwise an empty string. `device`: null if it is not known
/// yet.
std::string too_little_memory(const Device* device, const Settings& settings,
                              const LimitSources& from = {});
/// Returns, for each limit of the process and of the device, how many connections the limit allows,
/// and how much of the resource `connections` connections need.
std::vector<Capacity> capacities(const Device& device, std::uint64_t connections,
                                 const Settings& settings);
/// Returns a sentence about each limit that is nearly reached, to append to an error message; empty
/// if there is none, or if the errno value `err` is unrelated to limits. May be called on any
/// thread. `device`: null if it could not be opened.
std::string limit_words(int err, const std::string& name, const Device* device,
                        const Settings& settings);

}}}  // namespace conn::rdma
