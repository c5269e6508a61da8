// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/device/fabric.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "conn/error.h"
#include "conn/rdma/device/route.h"
#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

constexpr unsigned kMostShown = 8;  // largest number of GIDs that a message lists

constexpr std::array kPathMtu{OptionWord{"256", IBV_MTU_256}, OptionWord{"512", IBV_MTU_512},
                              OptionWord{"1024", IBV_MTU_1024}, OptionWord{"2048", IBV_MTU_2048},
                              OptionWord{"4096", IBV_MTU_4096}};

template <class Small>
std::optional<Small> number(OptionReader& options, const char* key) {
  const std::uint64_t value = options.number(key);
  return options.given(key) ? std::optional(static_cast<Small>(value)) : std::nullopt;
}

std::optional<ibv_mtu> mtu_from(OptionReader& options) {
  const std::string text = options.text("path-mtu");
  if (!options.given("path-mtu")) return std::nullopt;
  for (const OptionWord<ibv_mtu>& each : kPathMtu)
    if (text == each.word || text == size_text(bytes_of(each.value))) return each.value;
  // `text` is not one of the allowed words, so pick() throws an Error that lists them.
  return options.pick("path-mtu", kPathMtu);
}

[[noreturn]] void refuse(const std::string& sentence) {
  throw VerbsError(Failure{std::make_error_code(std::errc::invalid_argument), sentence});
}

bool is_empty(const ibv_gid& gid) noexcept {
  static constexpr ibv_gid kNone{};
  return std::memcmp(&gid, &kNone, sizeof gid) == 0;
}

std::optional<ibv_gid_entry> gid_at(const Port& port, unsigned index) noexcept {
  ibv_gid_entry entry{};
  if (ibv_query_gid_ex(port.device, static_cast<std::uint32_t>(port.number), index, &entry, 0) !=
          0 ||
      is_empty(entry.gid))
    return std::nullopt;
  return entry;
}

bool same_address(const ibv_gid& gid, const SocketAddress& address) noexcept {
  SocketAddress other;
  auto* six = reinterpret_cast<sockaddr_in6*>(other.get());
  six->sin6_family = AF_INET6;
  other.size = sizeof *six;
  std::memcpy(&six->sin6_addr, gid.raw, sizeof gid.raw);
  return address.same_host(other);
}

void check_gid(unsigned index, const Port& port, bool ethernet, const SocketAddress& from) {
  const auto entry = gid_at(port, index);
  if (!entry)
    refuse(fmt::format("gid-index={}: port {} of {} has no GID there; it has {}", index,
                       port.number, port.name, gids_text(port)));
  // The GID must be the local address of the connection, because the peer drops packets that come
  // from another address.
  if (ethernet && from.size != 0 && !same_address(entry->gid, from))
    refuse(fmt::format("gid-index={} of {} is {}, and this end is {}; there are {}", index,
                       port.name, gid_text(entry->gid), from.host(), gids_text(port)));
}

void check_pkey(unsigned index, const Port& port, unsigned count) {
  __be16 key = 0;
  if (index < count &&
      ibv_query_pkey(port.device, static_cast<std::uint8_t>(port.number), static_cast<int>(index),
                     &key) == 0 &&
      key != 0)
    return;
  refuse(fmt::format("pkey-index={}: port {} of {} has no partition key there, of {} in all", index,
                     port.number, port.name, count));
}

using Row = OptionRow;

}  // namespace

std::vector<OptionRow> Fabric::rows() {
  constexpr OptionSide kBothSides = OptionSide::kBoth;
  constexpr std::string_view kTheirs = "rdma_cm's";
  return {
      Row::number("traffic-class", kBothSides, 0, 0, 255,
                  "of the packets; the upper six bits are the DSCP")
          .by_default(kTheirs),
      Row::number("service-level", kBothSides, 0, 0, 15,
                  "InfiniBand's; on Ethernet a priority, 0 to 7")
          .by_default(kTheirs)
          .tuning(),
      Row::word("path-mtu", kBothSides, kPathMtu, ibv_mtu{}, "most bytes of a packet, at both ends")
          .by_default("the port's")
          .tuning(),
      Row::number("gid-index", kBothSides, 0, 0, 255,
                  "of the port's GID table: another kind of packet")
          .by_default(kTheirs)
          .tuning(),
      Row::number("pkey-index", kBothSides, 0, 0, 65535, "of the port's partition keys")
          .by_default(kTheirs)
          .tuning(),
      Row::flag("ece", kBothSides, Fabric{}.ece,
                "what both devices can beyond the standard, agreed on at set-up")
          .tuning()};
}

Fabric Fabric::from(OptionReader& options) {
  Fabric fabric;
  fabric.traffic_class = number<std::uint8_t>(options, "traffic-class");
  fabric.service_level = number<std::uint8_t>(options, "service-level");
  fabric.gid_index = number<std::uint8_t>(options, "gid-index");
  fabric.pkey_index = number<std::uint16_t>(options, "pkey-index");
  fabric.path_mtu = mtu_from(options);
  fabric.ece = options.flag("ece");
  return fabric;
}

std::string Fabric::words() const {
  std::string all;
  const auto add = [&](const char* key, const auto& value) {
    if (value) all += fmt::format("{}{}={}", all.empty() ? "" : ", ", key, *value);
  };
  add("traffic-class", traffic_class);
  add("service-level", service_level);
  add("gid-index", gid_index);
  add("pkey-index", pkey_index);
  add("path-mtu", path_mtu ? std::optional(bytes_of(*path_mtu)) : std::nullopt);
  return all;
}

void check(const Fabric& fabric, const Port& port, const SocketAddress& from) {
  if (!fabric.asks()) return;
  if (port.iwarp) {
    Fabric rest = fabric;
    // On iWARP only the traffic class is supported, which rdma_cm sets. All other options that are
    // set stay in `rest` and are refused.
    rest.traffic_class.reset();
    if (rest.asks())
      refuse(
          fmt::format("{}: {} is an iWARP device, where the kernel makes the connection and its "
                      "packets are TCP's",
                      rest.words(), port.name));
    return;
  }
  ibv_port_attr facts{};
  if (const int err = ibv_query_port(port.device, static_cast<std::uint8_t>(port.number), &facts);
      err != 0)
    throw VerbsError("ibv_query_port " + port.name, err);
  const bool ethernet = facts.link_layer == IBV_LINK_LAYER_ETHERNET;
  if (fabric.service_level && ethernet && *fabric.service_level > 7)
    refuse(fmt::format("service-level={}: {} is on Ethernet, which has 0 to 7",
                       *fabric.service_level, port.name));
  if (fabric.path_mtu && *fabric.path_mtu > facts.active_mtu)
    refuse(fmt::format("path-mtu={}: port {} of {} takes {}{}", bytes_of(*fabric.path_mtu),
                       port.number, port.name, bytes_of(facts.active_mtu),
                       ethernet ? "; the MTU of its network interface decides, less headers" : ""));
  if (fabric.gid_index) check_gid(*fabric.gid_index, port, ethernet, from);
  if (fabric.pkey_index) check_pkey(*fabric.pkey_index, port, facts.pkey_tbl_len);
}

std::string gid_text(const ibv_gid& gid) {
  static constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool four = std::memcmp(gid.raw, kMapped.data(), kMapped.size()) == 0;
  if (inet_ntop(four ? AF_INET : AF_INET6, gid.raw + (four ? kMapped.size() : 0), text.data(),
                text.size()) == nullptr)
    return {};
  return text.data();
}

std::string gids_text(const Port& port) {
  ibv_port_attr facts{};
  if (ibv_query_port(port.device, static_cast<std::uint8_t>(port.number), &facts) != 0) return "?";
  std::string all;
  unsigned shown = 0;
  for (int index = 0; index < facts.gid_tbl_len; ++index) {
    const auto entry = gid_at(port, static_cast<unsigned>(index));
    if (!entry) continue;
    if (++shown > kMostShown) return all + " and more";
    all += fmt::format("{}{} {} {}", all.empty() ? "" : ", ", index, gid_text(entry->gid),
                       gid_kind(entry->gid_type));
  }
  return all.empty() ? "none" : all;
}

}}}  // namespace conn::rdma
