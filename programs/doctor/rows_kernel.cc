// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>

#include "conn/error.h"
#include "programs/doctor/rows.h"

namespace doctor {
namespace {

std::string joined(const std::vector<std::string>& all) {
  return fmt::format("{}", fmt::join(all, ", "));
}

/// Whether devices of this kind support reliable connections.
bool can_connect(const Device& device) { return device.kind == "CA" || device.kind == "RNIC"; }

std::string remedy_of_file(const DeviceFile& file) {
  switch (file.error) {
    case ENOENT:
      return fmt::format(
          "in a container, give it the file: --device {}; elsewhere udev makes it: "
          "udevadm trigger",
          file.path);
    case EACCES:
      return fmt::format(
          "allow this user to read and write it: ls -l {} shows its group (often rdma): "
          "usermod -aG GROUP USER, then log in anew",
          file.path);
    case EPERM:
      return fmt::format(
          "the kernel refuses it to this group of processes or network namespace: in a container "
          "--device {}, on a host DeviceAllow= of the unit",
          file.path);
    default:
      return "see dmesg";
  }
}

}  // namespace

Verdict build(const Facts& facts) {
  if (facts.built_with_rdma) return {.row = "build", .text = "this program has rdma"};
  return {"build", Level::kFailed, "this program was built without rdma",
          "build it with libibverbs-dev and librdmacm-dev installed, without RDMA=no"};
}

Verdict libraries(const Facts& facts) {
  constexpr const char* kRow = "libraries";
  if (!facts.built_with_rdma) return {kRow, Level::kSkipped, "none are needed without rdma", {}};
  const conn::RdmaLibraries& found = facts.libraries;
  if (found.missing.empty()) return {.row = kRow, .text = joined(found.files)};
  return {kRow, Level::kFailed, found.missing,
          "then restart the program: it looks for them only once"};
}

Verdict modules(const Facts& facts) {
  std::vector<std::string> missing;
  if (!facts.core) missing.push_back("ib_core");
  if (!facts.verbs) missing.push_back("ib_uverbs");
  if (!facts.manager) missing.push_back("rdma_ucm");
  if (missing.empty())
    return {.row = "modules", .text = "ib_core, ib_uverbs and rdma_ucm are in the kernel"};
  std::string load = "modprobe -a";
  if (!facts.verbs || !facts.core) load += " ib_uverbs";
  if (!facts.manager) load += " rdma_ucm";
  return {"modules", Level::kFailed, "not in the kernel: " + joined(missing),
          load + " (as root; for a container, on the host)"};
}

Verdict device_files(const Facts& facts) {
  constexpr const char* kRow = "device files";
  if (facts.files.empty())
    return {kRow, Level::kSkipped, "not expected without modules and devices", {}};
  std::vector<std::string> open;
  const DeviceFile* worst = nullptr;
  bool some_device = false;
  for (const DeviceFile& each : facts.files) {
    const bool manager = each.path.ends_with("rdma_cm");
    if (each.error == 0) {
      open.push_back(each.path);
      some_device = some_device || !manager;
    } else if (worst == nullptr || manager) {
      worst = &each;
    }
  }
  if (worst == nullptr) return {.row = kRow, .text = joined(open) + ": may be opened"};
  const std::string why = fmt::format("{}: {}", worst->path, conn::errno_text(worst->error));
  // One device that may be opened is enough, but all need rdma_cm, of which there is only one.
  const bool rest = some_device && !worst->path.ends_with("rdma_cm");
  return {kRow, rest ? Level::kNote : Level::kFailed,
          rest ? fmt::format("{}; may be opened: {}", why, joined(open)) : why,
          remedy_of_file(*worst)};
}

Verdict devices(const Facts& facts) {
  constexpr const char* kRow = "devices";
  if (facts.devices.empty()) {
    if (facts.shared == false)
      return {kRow, Level::kFailed,
              "there is no RDMA device in this network namespace, and each belongs to only one "
              "(ib_core.netns_mode=0)",
              "move a device here: rdma dev set DEVICE netns NAME; or share devices between all "
              "namespaces: rdma system set netns shared"};
    return {kRow, Level::kFailed, "there is no RDMA device",
            "load the driver of the network card (mlx5_ib, irdma, bnxt_re, ...); without such a "
            "card: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev INTERFACE"};
  }
  std::vector<std::string> all;
  bool usable = false;
  for (const Device& each : facts.devices) {
    usable = usable || can_connect(each);
    all.push_back(fmt::format("{}{}{}", each.name, each.driver.empty() ? "" : " ", each.driver));
    if (!can_connect(each)) all.back() += " (no reliable connections: " + each.kind + ")";
  }
  if (usable) return {.row = kRow, .text = joined(all)};
  return {kRow, Level::kFailed, joined(all),
          "use tcp: devices of this kind do not support the reliable connections of rdma://"};
}

Verdict ports(const Facts& facts) {
  constexpr const char* kRow = "ports";
  if (facts.devices.empty()) return {kRow, Level::kSkipped, "no device", {}};
  std::vector<std::string> all;
  std::string down, first_down;
  bool active = false, initializing = false;
  for (const Device& device : facts.devices) {
    for (const Port& port : device.ports) {
      active = active || port.active();
      all.push_back(fmt::format("{} {} ({}{}{})", name_of(device, port), port.state,
                                port.link_layer, port.physical.empty() ? "" : ", ", port.physical));
      if (port.active()) continue;
      initializing = initializing || (port.state == "INIT" && !port.ethernet());
      if (down.empty()) down = interface_of(device, port), first_down = name_of(device, port);
    }
  }
  const std::string remedy =
      initializing ? "start a subnet manager on the fabric (opensm)"
      : down.empty()
          ? fmt::format("bring up the network interface of {}, or check its cable", first_down)
          : fmt::format("ip link set {} up, or check its cable", down);
  if (!active)
    return {kRow, Level::kFailed, all.empty() ? "the devices have no port" : joined(all), remedy};
  if (first_down.empty()) return {.row = kRow, .text = joined(all)};
  return {kRow, Level::kNote, joined(all), remedy};
}

}  // namespace doctor
