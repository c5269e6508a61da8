// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/config/limits.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <fstream>
#include <sstream>

#include "ae/once.h"
#include "conn/kit/saturating.h"
#include "conn/rdma/device/remembered_text.h"
#include "conn/rdma/protocol/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// Resources that each event loop needs besides those of its connections, for its shared receive
// queue, its first slabs (large pieces of memory) and its completion queues: bytes of locked
// memory, memory mappings and memory regions.
constexpr std::uint64_t kLoopLocked = 1 << 20, kLoopMappings = 64, kLoopRegions = 16;
constexpr std::uint64_t kSlab = 2 << 20;
// Smallest size in bytes of a block of memory that is cut out of a slab (a large piece of
// registered memory). It does not depend on the page size of the machine.
constexpr std::uint64_t kBlock = 4096;
// Bytes of locked memory that a protection domain of a single connection needs besides the receive
// windows.
constexpr std::uint64_t kOwnLocked = 24 * 1024;
// Number of memory mappings that the device's user-space driver makes for the rings of a queue
// pair; kOwnMappings is for a queue pair with a receive queue of its own.
constexpr std::uint64_t kMappings = 2, kOwnMappings = 4;
// Number of completion queues that the estimate assumes for an event loop. There are few, because
// each new queue has as many entries as all earlier ones together.
constexpr std::uint64_t kQueues = 8;
constexpr std::uint64_t kMost = std::uint64_t{1} << 40;

std::string rest_of_line(const std::string& file, const std::string& key) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);)
    if (line.starts_with(key)) return line.substr(key.size());
  return {};
}

std::uint64_t number_of(const std::string& text, std::uint64_t otherwise, int base = 10) {
  std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return otherwise;
  try {
    return std::stoull(text.substr(begin), nullptr, base);
  } catch (const std::exception&) {
    return otherwise;
  }
}

std::uint64_t lines_of(const std::string& file) {
  std::ifstream stream(file);
  return static_cast<std::uint64_t>(std::count(std::istreambuf_iterator<char>(stream), {}, '\n'));
}

// Returns true if the process has CAP_IPC_LOCK, which lifts the limit on locked memory.
bool locks_freely(const LimitSources& from) {
  constexpr std::uint64_t kIpcLock = std::uint64_t{1} << 14;
  const std::uint64_t effective =
      number_of(rest_of_line(from.proc + "/self/status", "CapEff:"), 0, 16);
  return (effective & kIpcLock) != 0;
}

// Returns the number after "hca_object=" in the line of `file` that begins with the device's name,
// such as "mlx5_0 hca_handle=2 hca_object=2000"; `none` if the value is "max" or there is no such
// line.
std::uint64_t objects_in(const std::string& file, const std::string& device, std::uint64_t none) {
  std::istringstream words(rest_of_line(file, device + " "));
  for (std::string word; words >> word;)
    if (word.starts_with("hca_object=")) return number_of(word.substr(11), none);
  return none;
}

// Returns the folder of this process's cgroup: in the hierarchy of the rdma controller (cgroups
// version 1) if that exists, otherwise in the unified hierarchy (version 2). Empty if neither is
// found.
std::string cgroup_folder(const LimitSources& from) {
  std::ifstream stream(from.proc + "/self/cgroup");
  std::string folder;
  for (std::string line; std::getline(stream, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controllers == "rdma") return from.cgroups + "/rdma" + line.substr(second + 1);
    if (controllers.empty()) folder = from.cgroups + line.substr(second + 1);
  }
  return folder;
}

// Appends the limits for `device` of this process's cgroup and of all its ancestors.
void add_cgroup(const std::string& device, const LimitSources& from, std::vector<Limit>& all) {
  std::string folder = cgroup_folder(from);
  while (folder.size() > from.cgroups.size()) {
    const std::uint64_t most = objects_in(folder + "/rdma.max", device, kMost);
    if (most < kMost)
      all.push_back(
          {fmt::format("rdma cgroup of {} (hca_object)", device), most,
           objects_in(folder + "/rdma.current", device, 0), &Need::objects, false,
           fmt::format("raise it with echo '{} hca_object={{}}' >{}/rdma.max", device, folder)});
    folder.resize(folder.rfind('/'));
  }
}

}  // namespace

Need need_of(std::uint64_t connections, const Settings& settings, const DeviceTraits& traits) {
  const bool own_domain = settings.isolation == Isolation::kConnection ||
                          (settings.isolation == Isolation::kAuto && !traits.binds_keys);
  const bool own_receives = own_domain || !traits.shares_receives;
  const bool keys = !own_domain && settings.isolation != Isolation::kNone;
  const auto block = [](std::uint64_t bytes) { return std::bit_ceil(std::max(bytes, kBlock)); };
  const std::uint64_t window = block(settings.window);
  const std::uint64_t receives = own_receives ? settings.receive_queue : 0;
  Need need;
  need.queue_pairs = connections;
  const std::uint64_t entries = std::uint64_t{settings.send_queue} + receives;
  need.completion_queues = saturating_sum(kQueues, saturating_product(connections, entries) /
                                                       std::max<std::uint64_t>(traits.max_cqe, 1));
  need.keys = keys ? connections : 0;
  need.domains = own_domain ? saturating_sum(connections, 2) : 2;
  need.regions = saturating_sum(
      kLoopRegions, own_domain           ? saturating_product(2, connections)
                    : traits.region_each ? connections
                                         : 1 + saturating_product(connections, window) / kSlab);
  const std::uint64_t own = own_receives ? block(receives * kControlSize) : 0;
  // Adds one slab (kSlab bytes), because the last slab of receive windows may be partly unused.
  need.locked =
      saturating_sum(kLoopLocked + std::uint64_t{settings.shared_receive_queue} * kControlSize +
                         (connections == 0 ? 0 : kSlab),
                     saturating_product(connections, window + own + (own_domain ? kOwnLocked : 0)));
  need.mappings = saturating_sum(
      kLoopMappings, saturating_product(connections, own_receives ? kOwnMappings : kMappings));
  need.objects = 8;  // the loop's completion channel and shared receives
  for (const std::uint64_t each :
       {need.queue_pairs, need.completion_queues, need.keys, need.domains, need.regions})
    need.objects = saturating_sum(need.objects, each);
  return need;
}

std::vector<Limit> process_limits(const std::string& name, const LimitSources& from) {
  std::vector<Limit> all;
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      !locks_freely(from))
    all.push_back(
        {"locked memory (memlock)", limit.rlim_cur,
         saturating_product(1024, number_of(rest_of_line(from.proc + "/self/status", "VmPin:"), 0)),
         &Need::locked, true,
         "raise it with ulimit -l {} (KiB), LimitMEMLOCK={}K of a systemd unit, or "
         "--ulimit memlock=-1 of a container"});
  const std::uint64_t mappings =
      number_of(rest_of_line(from.proc + "/sys/vm/max_map_count", ""), kMost);
  if (mappings < kMost)
    all.push_back({"memory mappings (vm.max_map_count)", mappings,
                   lines_of(from.proc + "/self/maps"), &Need::mappings, false,
                   "raise it with sysctl vm.max_map_count={}"});
  if (!name.empty()) add_cgroup(name, from, all);
  return all;
}

std::vector<Limit> device_limits(const std::string& name, const ibv_device_attr& device) {
  const auto most = [](int value) { return static_cast<std::uint64_t>(std::max(value, 0)); };
  const std::string other = "use another device, or several";
  return {{fmt::format("queue pairs of {} (max_qp)", name), most(device.max_qp), 0,
           &Need::queue_pairs, false, other},
          {fmt::format("completion queues of {} (max_cq)", name), most(device.max_cq), 0,
           &Need::completion_queues, false, other},
          {fmt::format("memory regions of {} (max_mr)", name), most(device.max_mr), 0,
           &Need::regions, false, other + ", or isolation=window or none where it can"},
          {fmt::format("memory windows of {} (max_mw)", name), most(device.max_mw), 0, &Need::keys,
           false, other + ", or isolation=none between peers that trust each other"},
          {fmt::format("protection domains of {} (max_pd)", name), most(device.max_pd), 0,
           &Need::domains, false, other + ", or isolation=window or none where it can"}};
}

Capacity capacity_of(const Limit& limit, std::uint64_t connections, const Settings& settings,
                     const DeviceTraits& traits) {
  const auto needed = [&](std::uint64_t count) {
    return need_of(count, settings, traits).*limit.what;
  };
  const std::uint64_t room = limit.most - std::min(limit.used, limit.most);
  std::uint64_t fits = 0, step = std::uint64_t{1} << 32;
  for (; step != 0; step /= 2)
    if (needed(fits + step) <= room) fits += step;
  Capacity capacity{limit.name, limit.most,  limit.used, needed(connections),
                    fits,       limit.bytes, limit.raise};
  const std::uint64_t wanted = saturating_sum(capacity.used, capacity.needed);
  const std::string number =
      std::to_string(limit.bytes ? saturating_sum(wanted, 1023) / 1024 : wanted);
  for (std::size_t at; (at = capacity.raise.find("{}")) != std::string::npos;)
    capacity.raise.replace(at, 2, number);
  return capacity;
}

std::uint64_t locked_by_one(const Device* device, const Settings& settings) {
  std::uint64_t receives = 0;
  if (device != nullptr) {
    const ibv_device_attr& most = device->limits();
    const bool alone =
        settings.isolation == Isolation::kConnection ||
        (settings.isolation == Isolation::kAuto && device->binding() == Device::Binding::kNo);
    const bool shared = !alone && device->shares_receives() && most.max_srq > 0;
    receives = shared ? std::min({settings.shared_receive_queue,
                                  static_cast<std::uint32_t>(std::max(most.max_srq_wr, 0)),
                                  device->max_cq() / 2})
                      : settings.receive_queue;
  }
  return round_to_pages(settings.window) + round_to_pages(receives * kControlSize);
}

std::string too_little_memory(const Device* device, const Settings& settings,
                              const LimitSources& from) {
  const std::uint64_t least = locked_by_one(device, settings);
  for (const Limit& limit : process_limits({}, from)) {
    if (limit.what != &Need::locked) continue;
    // If this library has locked memory already, a part of it may be unused and serve the
    // connection. So the memory in use is not subtracted then.
    const std::uint64_t used = registered_bytes() == 0 ? limit.used : 0;
    if (used <= limit.most && least <= limit.most - used) continue;
    return fmt::format(
        "no connection could be served: {}: {} KiB, {} KiB used, and the first "
        "connection needs {} KiB; {}",
        limit.name, limit.most / 1024, used / 1024, (least + 1023) / 1024,
        capacity_of(limit, 1, settings, {}).raise);
  }
  return {};
}

std::vector<Capacity> capacities(const Device& device, std::uint64_t connections,
                                 const Settings& settings) {
  const DeviceTraits traits{device.binding() != Device::Binding::kNo,
                            device.keys_reach_whole_regions(), device.shares_receives(),
                            device.max_cq()};
  std::vector<Capacity> all;
  for (const auto& limits :
       {process_limits(device.name()), device_limits(device.name(), device.limits())})
    for (const Limit& each : limits)
      all.push_back(capacity_of(each, connections, settings, traits));
  return all;
}

std::string limit_words(int err, const std::string& name, const Device* device,
                        const Settings& settings) {
  if (err != ENOMEM && err != EPERM && err != EMFILE && err != ENOSPC && err != EAGAIN) return {};
  // The text is cached, because reading the limits is slow if the process has many memory mappings.
  return ae::once([] { return RememberedText(); }).get([&] {
    // A limit counts as nearly reached if it allows fewer than this many further connections. The
    // number is not smaller, because the estimates may be wrong by a few connections.
    constexpr std::uint64_t kFew = 16;
    std::string words;
    const auto add = [&words](const Capacity& each) {
      if (each.connections < kFew) words += "; " + each.text(kFew);
    };
    if (device != nullptr)
      for (const Capacity& each : capacities(*device, kFew, settings)) add(each);
    else
      for (const Limit& each : process_limits(name)) add(capacity_of(each, kFew, settings, {}));
    add(descriptor_capacity(kFew, 1));
    return words;
  });
}

}}}  // namespace conn::rdma
