// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/device/device_list.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "ae/once.h"
#include "conn/kit/local_addresses.h"
#include "conn/rdma/device/remembered_text.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

namespace fs = std::filesystem;

// The largest number of devices that one message lists, and of addresses of each device.
constexpr std::size_t kMostDevices = 8, kMostAddresses = 4;

std::string first_line(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
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

// Parses a GID as sysfs prints it, with all eight groups. Returns no value for an empty (all-zero)
// GID.
std::optional<SocketAddress> address_of(const std::string& gid) {
  SocketAddress address;
  if (gid.find_first_not_of("0:") == std::string::npos || !numeric_address(gid, 0, address))
    return std::nullopt;
  return address;
}

template <class Items, class Text>
std::string listed(const Items& items, std::size_t most, Text text) {
  std::string all;
  std::size_t shown = 0;
  for (const auto& each : items) {
    if (shown++ == most) return all + ", ...";
    all += (all.empty() ? "" : ", ") + text(each);
  }
  return all;
}

std::string device_text(const DeviceHere& device) {
  std::string inside =
      listed(device.addresses, kMostAddresses, [](const auto& each) { return each; });
  if (inside.empty()) inside = "no address in this network namespace";
  if (!device.active) inside += ", link down";
  return device.name + " (" + inside + ")";
}

}  // namespace

std::vector<DeviceHere> devices_here(const std::vector<SocketAddress>& present,
                                     const std::string& folder) {
  std::vector<DeviceHere> all;
  for (const fs::path& place : entries(folder)) {
    DeviceHere device{place.filename().string(), false, {}};
    for (const fs::path& port : entries(place / "ports")) {
      device.active |= first_line(port / "state").find("ACTIVE") != std::string::npos;
      for (const fs::path& gid : entries(port / "gids")) {
        const auto address = address_of(first_line(gid));
        if (!address) continue;
        const auto same = std::find_if(present.begin(), present.end(),
                                       [&](const auto& each) { return each.same_host(*address); });
        if (same == present.end()) continue;
        const std::string host = same->host();
        if (std::find(device.addresses.begin(), device.addresses.end(), host) ==
            device.addresses.end())
          device.addresses.push_back(host);
      }
    }
    all.push_back(std::move(device));
  }
  return all;
}

std::string devices_text(const std::vector<DeviceHere>& devices) {
  if (devices.empty()) return "there is no RDMA device here";
  return (devices.size() == 1 ? "here is " : "here are ") +
         listed(devices, kMostDevices, device_text);
}

std::string devices_text() {
  return ae::once([] { return RememberedText(); }).get([] {
    return devices_text(devices_here(local_addresses()));
  });
}

}}}  // namespace conn::rdma
