// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/device/device_list.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <utility>

#include "ae/core/fork.h"
#include "conn/rdma/device/libraries.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostDevices = 8, kMostAddresses = 4;  // in a message

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

// The address of a GID as sysfs prints it, with all eight groups; no value for an empty GID.
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

std::string text_of(const DeviceHere& device) {
  std::string inside =
      listed(device.addresses, kMostAddresses, [](const auto& each) { return each; });
  if (inside.empty()) inside = "no address in this network namespace";
  if (!device.active) inside += ", link down";
  return device.name + " (" + inside + ")";
}

constexpr const char* kCmDevice = "/dev/infiniband/rdma_cm";
bool nothing_there(int err) { return err == ENODEV || err == ENOENT || err == ENXIO; }

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
  return (devices.size() == 1 ? "here is " : "here are ") + listed(devices, kMostDevices, text_of);
}

std::string devices_text() {
  static ae::Mutex mutex;
  static std::string known;
  static std::chrono::steady_clock::time_point until{};
  const std::lock_guard lock(mutex);
  const auto now = std::chrono::steady_clock::now();
  constexpr std::chrono::seconds kAgain(1);
  if (now >= until || until - now > kAgain) {
    known = devices_text(devices_here(local_addresses()));
    until = now + kAgain;
  }
  return known;
}

std::string no_device_has(const std::string& address) {
  return "no RDMA device has the address " + address + "; " + devices_text();
}

bool is_no_device(int err) noexcept {
  return err == ENODEV || err == EADDRNOTAVAIL || err == ENETUNREACH;
}

VerbsError not_reached(const SocketAddress& address, int err) {
  Failure why = errno_failure(err, "no RDMA device reaches " + address.to_string());
  if (is_no_device(err)) why.text += "; " + devices_text();
  return VerbsError(std::move(why));
}

void require_device(const CmId& id) {
  if (id->verbs == nullptr) throw VerbsError("the address is bound to no RDMA device", ENODEV);
}

Error unavailable(const VerbsError& error) {
  if (std::string missing = missing_libraries(); !missing.empty()) return Error(missing);
  int err = error.failure().code.value();
  // Where librdmacm may not open this device file, it looks for another one and reports that it is
  // missing.
  if (nothing_there(err) && access(kCmDevice, F_OK) == 0 && access(kCmDevice, R_OK | W_OK) != 0)
    err = EACCES;
  if (nothing_there(err))
    return Error(
        "no RDMA device on this machine: load the driver of one, or for a trial without hardware "
        "run `modprobe rdma_rxe && rdma link add rxe0 type rxe netdev NETDEV` and "
        "`modprobe rdma_ucm` (" +
        error.failure().text + ")");
  if (err == EACCES || err == EPERM)
    return Error("this user may not use RDMA: give it access to /dev/infiniband (" +
                 error.failure().text + ")");
  return Error("RDMA cannot be used: " + error.failure().text);
}

}}}  // namespace conn::rdma
