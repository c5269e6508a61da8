// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/trusted_senders.h"

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

bool TrustedSenders::read_host(const SocketAddress& address, Host& host) noexcept {
  if (address.family() == AF_INET) {
    host = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    std::memcpy(&host[12], &reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr, 4);
    return true;
  }
  if (address.family() != AF_INET6) return false;
  const in6_addr& six = reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr;
  std::memcpy(host.data(), &six, host.size());
  return true;
}

TrustedSenders TrustedSenders::parse(std::string_view list) {
  TrustedSenders senders;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string_view part = list.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t slash = part.find('/');
    SocketAddress address;
    Network network{};
    if (part.find('%') != part.npos ||
        !numeric_address(std::string(part.substr(0, slash)), 0, address) ||
        !read_host(address, network.host))
      refuse(part, "must name the trusted senders, as in 10.0.0.1,10.1.0.0/16,fd00::/8");
    const unsigned least = address.family() == AF_INET ? kBitsBeforeIpv4 : 0;
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

bool TrustedSenders::has(const SocketAddress& sender) const noexcept {
  if (networks_.empty()) return everybody_;
  Host host{};
  if (!read_host(sender, host)) return false;
  return std::any_of(networks_.begin(), networks_.end(), [&](const Network& network) {
    for (std::size_t i = 0; i < host.size(); ++i)
      if (((host[i] ^ network.host[i]) & mask_of(network.bits, i)) != 0) return false;
    return true;
  });
}

}}}  // namespace conn::tcp
