// SPDX-License-Identifier: BSD-3-Clause
// Reads the facts. Anything unreadable counts as absent; the rows interpret that.

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <memory>

#include "programs/doctor/facts.h"

namespace doctor {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

/// Extracts "ACTIVE" from "4: ACTIVE", the sysfs format of enumerations.
std::string word_of(const fs::path& file) {
  std::string line = first_line(file);
  const auto colon = line.find(": ");
  return colon == std::string::npos ? line : line.substr(colon + 2);
}

int number_in(const fs::path& file, int otherwise) {
  const std::string line = first_line(file);
  int value = otherwise;
  std::from_chars(line.data(), line.data() + line.size(), value);
  return value;
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> all;
  std::error_code failed;
  for (fs::directory_iterator each(folder, failed), end; !failed && each != end;
       each.increment(failed))
    all.push_back(each->path());
  std::sort(all.begin(), all.end());
  return all;
}

int number_of(const fs::path& entry) {
  const std::string name = entry.filename().string();
  int value = 0;
  std::from_chars(name.data(), name.data() + name.size(), value);
  return value;
}

/// Parses a sysfs list such as "0-3,8".
std::vector<int> numbers(const std::string& list) {
  std::vector<int> all;
  const char *at = list.data(), *const end = at + list.size();
  while (at < end) {
    int first = 0, last = 0;
    auto [next, wrong] = std::from_chars(at, end, first);
    if (wrong != std::errc{}) return {};
    last = first;
    if (next < end && *next == '-') next = std::from_chars(next + 1, end, last).ptr;
    for (int each = first; each <= last && all.size() < CPU_SETSIZE; ++each) all.push_back(each);
    at = next < end && *next == ',' ? next + 1 : end;
  }
  return all;
}

Port read_port(const fs::path& folder, const fs::path& configured) {
  Port port{.number = number_of(folder),
            .state = word_of(folder / "state"),
            .physical = word_of(folder / "phys_state"),
            .link_layer = first_line(folder / "link_layer"),
            .gid_entries = 0,
            .gids = {},
            .cm_mode = first_line(configured / "default_roce_mode"),
            .cm_tos = first_line(configured / "default_roce_tos")};
  for (const fs::path& each : entries(folder / "gids")) {
    ++port.gid_entries;
    const std::string text = first_line(each);
    if (text.find_first_not_of("0:") == std::string::npos) continue;
    const fs::path more = folder / "gid_attrs";
    port.gids.push_back({number_of(each), text, first_line(more / "types" / each.filename()),
                         first_line(more / "ndevs" / each.filename())});
  }
  std::sort(port.gids.begin(), port.gids.end(),
            [](const Gid& a, const Gid& b) { return a.index < b.index; });
  return port;
}

Device read_device(const fs::path& folder, const fs::path& root) {
  Device device;
  device.name = folder.filename().string();
  std::error_code none;
  device.driver = fs::read_symlink(folder / "device" / "driver", none).filename().string();
  device.kind = word_of(folder / "node_type");
  // Soft-RoCE has no underlying device; only soft-RoCE has this file.
  device.network = first_line(folder / "parent");
  if (device.driver.empty() && !device.network.empty()) device.driver = "rdma_rxe";
  if (device.network.empty())
    if (const auto below = entries(folder / "device" / "net"); !below.empty())
      device.network = below.front().filename().string();
  device.node = number_in(folder / "device" / "numa_node", -1);
  if (device.node >= 0) device.processors = numbers(first_line(folder / "device/local_cpulist"));
  const fs::path configured = root / "sys/kernel/config/rdma_cm" / device.name / "ports";
  for (const fs::path& each : entries(folder / "ports"))
    device.ports.push_back(read_port(each, configured / each.filename()));
  return device;
}

/// Opening the file does not allocate anything on the device.
int try_to_open(const fs::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return errno;
  ::close(descriptor);
  return 0;
}

void add_addresses(Facts& facts) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const int family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    LocalAddress local{each->ifa_name, {}};
    local.address.size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&local.address.storage, each->ifa_addr, local.address.size);
    facts.addresses.push_back(std::move(local));
  }
}

}  // namespace

Facts read_facts(const fs::path& root) {
  Facts facts;
  facts.built_with_rdma = AECONN_RDMA != 0;
  facts.libraries = conn::rdma_libraries();
  const fs::path classes = root / "sys/class";
  // Class folders, because built-in drivers are not listed as modules.
  facts.core = fs::exists(classes / "infiniband");
  facts.verbs = fs::exists(classes / "infiniband_verbs");
  facts.manager = fs::exists(classes / "misc/rdma_cm");
  const std::string mode = first_line(root / "sys/module/ib_core/parameters/netns_mode");
  if (!mode.empty()) facts.shared = mode == "Y" || mode == "1";
  const fs::path nodes = root / "dev/infiniband";
  if (facts.manager)
    facts.files.push_back({(nodes / "rdma_cm").string(), try_to_open(nodes / "rdma_cm")});
  for (const fs::path& each : entries(classes / "infiniband_verbs")) {
    const std::string name = each.filename().string();
    if (name.starts_with("uverbs"))
      facts.files.push_back({(nodes / name).string(), try_to_open(nodes / name)});
  }
  for (const fs::path& each : entries(classes / "infiniband"))
    facts.devices.push_back(read_device(each, root));
  for (const fs::path& each : entries(classes / "net")) {
    const std::string name = each.filename().string();
    facts.mtu[name] = static_cast<unsigned>(std::max(0, number_in(each / "mtu", 0)));
  }
  add_addresses(facts);
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0)
    for (int each = 0; each < CPU_SETSIZE; ++each)
      if (CPU_ISSET(each, &allowed)) facts.processors.push_back(each);
  if (rlimit limit{}; ::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    facts.descriptors = limit.rlim_cur;
    facts.most_descriptors = limit.rlim_max;
  }
  return facts;
}

}  // namespace doctor
