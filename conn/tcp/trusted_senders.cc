// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/trusted_senders.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>

#include "conn/error.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {
namespace {

constexpr unsigned kBits = 128, kBitsBeforeIpv4 = 96;

[[noreturn]] void refuse(std::string_view part, const char* why) {
  throw Error("option proxy-protocol: \"" + std::string(part) + "\": " + why);
}

using Host = std::array<std::uint8_t, 16>;

Host mapped(const in_addr& address) noexcept {
  Host host{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  std::memcpy(&host[kBitsBeforeIpv4 / 8], &address, sizeof address);
  return host;
}

/// Reads an address as inet_pton(3) does; `four` is whether it is IPv4.
bool read_text(const std::string& text, Host& host, bool& four) noexcept {
  if (text.find('\0') != text.npos) return false;
  in_addr address{};
  four = inet_pton(AF_INET, text.c_str(), &address) == 1;
  if (four) host = mapped(address);
  return four || inet_pton(AF_INET6, text.c_str(), host.data()) == 1;
}

/// Returns the mask of the byte `index` of an address whose first `bits` bits count.
unsigned mask_of(unsigned bits, std::size_t index) noexcept {
  const auto before = static_cast<unsigned>(8 * index);
  const unsigned in_byte = bits <= before ? 0 : std::min(bits - before, 8u);
  return 0xffu & (0xff00u >> in_byte);
}

}  // namespace

TrustedSenders TrustedSenders::everybody() noexcept {
  TrustedSenders all;
  all.everybody_ = true;
  return all;
}

bool TrustedSenders::has(const SocketAddress& sender) const noexcept {
  if (networks_.empty()) return everybody_;
  Host host{};
  if (sender.family() == AF_INET)
    host = mapped(reinterpret_cast<const sockaddr_in*>(sender.get())->sin_addr);
  else if (sender.family() == AF_INET6)
    std::memcpy(host.data(), &reinterpret_cast<const sockaddr_in6*>(sender.get())->sin6_addr,
                host.size());
  else
    return false;
  return std::any_of(networks_.begin(), networks_.end(), [&](const Network& network) {
    for (std::size_t i = 0; i < host.size(); ++i)
      if (((host[i] ^ network.host[i]) & mask_of(network.bits, i)) != 0) return false;
    return true;
  });
}

TrustedSenders TrustedSenders::parse(std::string_view list) {
  TrustedSenders senders;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string_view part = list.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t slash = part.find('/');
    Network network{};
    bool four = false;
    if (!read_text(std::string(part.substr(0, slash)), network.host, four))
      refuse(part, "must name the trusted senders, as in 10.0.0.1,10.1.0.0/16,fd00::/8");
    const unsigned least = four ? kBitsBeforeIpv4 : 0;
    network.bits = kBits;
    if (slash != part.npos) {
      const char* const last = part.data() + part.size();
      const auto [rest, error] = std::from_chars(part.data() + slash + 1, last, network.bits);
      if (error != std::errc() || rest != last || network.bits > kBits - least)
        refuse(part, least != 0 ? "a network has 0 to 32 bits" : "a network has 0 to 128 bits");
      network.bits += least;
    }
    for (std::size_t i = 0; i < network.host.size(); ++i)
      if ((network.host[i] & ~mask_of(network.bits, i)) != 0)
        refuse(part, "the address has more bits than the network");
    senders.networks_.push_back(network);
  }
  return senders;
}

}}}  // namespace conn::tcp
