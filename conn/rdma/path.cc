// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/path.h"

#include <fmt/format.h>

#include <new>
#include <string_view>

namespace conn { inline namespace AECONN_ABI { namespace rdma {

std::optional<bool> Path::is_local() const noexcept {
  const SocketAddress to = peer();
  if (to.size == 0) return std::nullopt;
  return local().same_host(to);
}

void Path::name_peer(Failure& failure) const noexcept {
  try {
    const std::string name = peer().to_string();
    if (!name.empty()) failure.text = fmt::format("rdma {}: {}", name, failure.text);
  } catch (const std::bad_alloc&) {  // no memory: the text does not name the peer
  }
}

void Path::set_device(const Device& device, int port) {
  device_ = fmt::format("{}/{}", device.name(), port);
  iwarp_ = device.iwarp();
  route_ = {};
}

const Route& Path::route(ibv_qp* qp, int port) const noexcept {
  if (qp != nullptr) read_back(qp, port, route_);
  return route_;
}

std::string Path::line(const Fabric& asked) const {
  std::string line = "rdma " + device_;
  if (route_.global) line += fmt::format(" gid {}", route_.gid_index);
  const std::string_view kind = iwarp_ ? "iWARP" : route_.kind;
  if (!kind.empty()) line.append(" ").append(kind);
  line += fmt::format(" {} > {}", local().to_string(), peer().to_string());
  if (bytes_of(route_.mtu) != 0) line += fmt::format(" mtu {}", bytes_of(route_.mtu));
  if (route_.global) line += fmt::format(" tc {}", route_.traffic_class);
  // On iWARP no call reports the traffic class, so the value of the option is shown.
  if (iwarp_ && asked.traffic_class) line += fmt::format(" tc {}", *asked.traffic_class);
  if (route_.known) line += fmt::format(" sl {}", route_.service_level);
  return line;
}

void Path::add_facts(std::vector<std::pair<std::string, std::string>>& facts) const {
  const auto text = [](auto value) { return fmt::format("{}", value); };
  if (route_.global) {
    facts.emplace_back("gid-index", text(route_.gid_index));
    facts.emplace_back("traffic-class", text(route_.traffic_class));
  }
  if (route_.kind[0] != '\0') facts.emplace_back("gid-type", route_.kind);
  if (bytes_of(route_.mtu) != 0) facts.emplace_back("mtu", text(bytes_of(route_.mtu)));
  if (route_.known) facts.emplace_back("service-level", text(route_.service_level));
}

}}}  // namespace conn::rdma
