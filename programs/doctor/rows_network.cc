// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "programs/doctor/rows.h"

namespace doctor {
namespace {

constexpr std::size_t kMostShown = 4;  // per port

std::string joined(const std::vector<std::string>& all) {
  return fmt::format("{}", fmt::join(all, ", "));
}

bool is_link_local(const Gid& gid) { return gid.text.starts_with("fe80:"); }

bool is_here(const Facts& facts, const Gid& gid) {
  const auto address = address_of(gid);
  return address &&
         std::any_of(facts.addresses.begin(), facts.addresses.end(),
                     [&](const LocalAddress& each) { return each.address.same_host(*address); });
}

std::string shown(const Gid& gid) {
  const auto address = address_of(gid);
  std::string host = address ? address->host() : gid.text;
  constexpr std::string_view kMapped = "::ffff:";
  if (host.starts_with(kMapped) && host.find('.') != std::string::npos)
    host.erase(0, kMapped.size());
  return host + (gid.type.empty() ? "" : " ") + gid.type;
}

/// Summary of one port's GID table and the remedy; `good`: it is usable.
struct Table {
  std::string text, remedy;
  bool good = false;
};

Table look_at(const Facts& facts, const Device& device, const Port& port) {
  const std::string name = name_of(device, port);
  const std::string interface = interface_of(device, port);
  const std::string add =
      fmt::format("ip addr add ADDRESS/24 dev {}", interface.empty() ? "INTERFACE" : interface);
  if (port.gids.empty()) {
    if (port.gid_entries == 0) return {name + " has no GIDs", add, false};
    return {fmt::format("{}: all GIDs are zero: its network interface is in another network "
                        "namespace, or has no address",
                        name),
            "run this where the interface is (in a pod or container: with the host's network, or "
            "move the interface in), and give it an address: " +
                add,
            false};
  }
  std::string list;
  std::size_t count = 0;
  for (const Gid& each : port.gids) {
    if (count == kMostShown) {
      list += ", ...";
      break;
    }
    list += (count++ == 0 ? "" : ", ") + shown(each);
  }
  const std::string text = name + ": " + list;
  if (!port.ethernet()) return {text, {}, true};
  const auto any = [&](auto wanted) {
    return std::any_of(port.gids.begin(), port.gids.end(), wanted);
  };
  if (!any([&](const Gid& gid) { return is_here(facts, gid); }))
    return {text + ": of another network namespace, or of an interface without these addresses",
            "run this where the interface is: in a pod or container with the host's network, or "
            "move the interface in",
            false};
  // Link-local GIDs work only with a scope, which users rarely specify.
  if (!any([&](const Gid& gid) { return !is_link_local(gid) && is_here(facts, gid); }))
    return {text + ": link-local only", "give the interface an address: " + add, false};
  const bool told = any([](const Gid& gid) { return !gid.type.empty(); });
  if (device.kind != "RNIC" && told && !any([](const Gid& gid) { return gid.type == "RoCE v2"; }))
    return {text + ": RoCE v1 only, which is not routable and cannot reach RoCE v2",
            "configure the driver for GIDs of RoCE v2, or use only peers on the same network",
            true};
  return {text, {}, true};
}

}  // namespace

Verdict gids(const Facts& facts) {
  constexpr const char* kRow = "gids";
  std::vector<std::string> all;
  std::string remedy;
  bool any_good = false, any_word = false;
  for (const Device& device : facts.devices) {
    for (const Port& port : device.ports) {
      Table table = look_at(facts, device, port);
      any_good = any_good || table.good;
      if (!table.remedy.empty() && !any_word) remedy = std::move(table.remedy), any_word = true;
      all.push_back(std::move(table.text));
    }
  }
  if (all.empty()) return {kRow, Level::kSkipped, "no device", {}};
  const std::string text = fmt::format("{}", fmt::join(all, "; "));
  if (!any_good) return {kRow, Level::kFailed, text, remedy};
  return {kRow, any_word ? Level::kNote : Level::kOk, text, remedy};
}

Verdict addresses(const Facts& facts) {
  constexpr const char* kRow = "addresses";
  if (facts.devices.empty()) return {kRow, Level::kSkipped, "no device", {}};
  std::vector<std::string> with, without;
  for (const LocalAddress& each : facts.addresses) {
    const Place place = place_of(facts, each.address);
    const std::string host = each.address.host();
    if (place)
      with.push_back(fmt::format("{} is {}", host, name_of(*place.device, *place.port)));
    else
      without.push_back(fmt::format("{} ({})", host, each.interface));
  }
  std::string text = joined(with);
  if (!without.empty()) {
    if (without.size() > kMostShown) without.resize(kMostShown), without.push_back("...");
    text += (with.empty() ? "" : "; ") + ("no device: " + joined(without));
  }
  if (text.empty()) text = "this network namespace has no address";
  if (!with.empty()) return {.row = kRow, .text = text};
  return {kRow, Level::kFailed, text,
          "give the network interface of an RDMA device an address: ip addr add ADDRESS/24 dev "
          "INTERFACE; rdma link names the interface"};
}

Verdict packets(const Facts& facts) {
  constexpr const char* kRow = "mtu";
  std::vector<std::string> all;
  std::string remedy;
  for (const Device& device : facts.devices) {
    for (const Port& port : device.ports) {
      const std::string interface = interface_of(device, port);
      const auto found = facts.mtu.find(interface);
      if (!port.ethernet() || found == facts.mtu.end()) continue;
      const unsigned mtu = roce_mtu(found->second);
      all.push_back(
          fmt::format("{} {}, as {} has {}", name_of(device, port), mtu, interface, found->second));
      if (mtu < 4096 && remedy.empty())
        remedy = fmt::format(
            "4096 needs less processor time for large values: ip link set {} mtu "
            "4200, at both ends and at the switches between them",
            interface);
    }
  }
  if (all.empty())
    return {kRow,
            Level::kSkipped,
            "not known from a network interface; see path() of a connection",
            {}};
  return {kRow, remedy.empty() ? Level::kOk : Level::kNote, joined(all), remedy};
}

Verdict marking(const Facts& facts) {
  constexpr const char* kRow = "marking";
  std::vector<std::string> all;
  bool old = false;
  for (const Device& device : facts.devices) {
    for (const Port& port : device.ports) {
      if (port.cm_mode.empty()) continue;
      all.push_back(fmt::format("{} {}, type of service {}", name_of(device, port), port.cm_mode,
                                port.cm_tos.empty() ? "0" : port.cm_tos));
      old = old || port.cm_mode.find("v1") != std::string::npos;
    }
  }
  if (facts.devices.empty()) return {kRow, Level::kSkipped, "no device", {}};
  if (all.empty())
    return {.row = kRow,
            .text =
                "rdma_cm uses its defaults (configfs has no settings for these devices); a URL's "
                "traffic-class takes precedence"};
  if (!old)
    return {.row = kRow,
            .text = "rdma_cm: " + joined(all) + "; a URL's traffic-class takes precedence"};
  return {kRow, Level::kNote, "rdma_cm: " + joined(all) + ": not routable",
          "echo 'RoCE v2' >/sys/kernel/config/rdma_cm/DEVICE/ports/1/default_roce_mode"};
}

}  // namespace doctor
