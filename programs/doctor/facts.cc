// SPDX-License-Identifier: BSD-3-Clause
#include "programs/doctor/facts.h"

#include <algorithm>

namespace doctor {

std::optional<conn::SocketAddress> address_of(const Gid& gid) {
  conn::SocketAddress address;
  if (!conn::numeric_address(gid.text, 0, address)) return std::nullopt;
  return address;
}

Place place_of(const Facts& facts, const conn::SocketAddress& address) {
  const auto local =
      std::find_if(facts.addresses.begin(), facts.addresses.end(),
                   [&](const LocalAddress& each) { return each.address.same_host(address); });
  if (local == facts.addresses.end()) return {};
  for (const Device& device : facts.devices) {
    for (const Port& port : device.ports) {
      // InfiniBand GIDs are not IP addresses; for them only the interface identifies the port.
      if (port.ethernet())
        for (const Gid& gid : port.gids)
          if (const auto of = address_of(gid); of && of->same_host(address))
            return {&device, &port};
      if ((!port.ethernet() || device.kind == "RNIC") && !local->interface.empty() &&
          interface_of(device, port) == local->interface)
        return {&device, &port};
    }
  }
  return {};
}

std::string name_of(const Device& device, const Port& port) {
  return device.name + "/" + std::to_string(port.number);
}

std::string interface_of(const Device& device, const Port& port) {
  for (const Gid& gid : port.gids)
    if (!gid.interface.empty()) return gid.interface;
  return device.network;
}

unsigned roce_mtu(unsigned of_interface) noexcept {
  constexpr unsigned kHeaders = 96;  // as counted by iboe_get_mtu() of the kernel
  if (of_interface < kHeaders + 256) return 0;
  unsigned mtu = 4096;
  while (mtu > of_interface - kHeaders) mtu /= 2;
  return mtu;
}

}  // namespace doctor
