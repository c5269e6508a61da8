// SPDX-License-Identifier: BSD-3-Clause
#include "conn/kit/proxy_header.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace conn { inline namespace AECONN_ABI {
namespace {

constexpr std::string_view kTextBegin = "PROXY ";
constexpr std::string_view kSignature{"\r\n\r\n\0\r\nQUIT\n", 12};
// Bytes of a PROXY v2 header's fixed part: signature, version and command, family, length.
constexpr std::size_t kFixed = 16;

constexpr std::string_view kMissing = "is missing: the first bytes are others";
constexpr std::string_view kBadAddress =
    "must have two addresses of the family it names, and two ports";

// Values in a PROXY header of version 2: commands, address families, and transport protocols.
constexpr unsigned kLocal = 0, kProxy = 1;
constexpr unsigned kUnspec = 0, kInet = 1, kInet6 = 2, kUnix = 3;
constexpr unsigned kStream = 1, kDatagram = 2;

/// Returns the size of both addresses together with their ports in a header of version 2.
constexpr std::size_t size_of_addresses(unsigned family) noexcept {
  switch (family) {
    case kInet:
      return 2 * (4 + 2);
    case kInet6:
      return 2 * (16 + 2);
    case kUnix:
      return 2 * 108;
    default:
      return 0;
  }
}

SocketAddress make_address(int family, const void* host, std::uint16_t port) noexcept {
  SocketAddress address;
  if (family == AF_INET) {
    auto* four = reinterpret_cast<sockaddr_in*>(address.get());
    four->sin_family = AF_INET;
    std::memcpy(&four->sin_addr, host, sizeof four->sin_addr);
    address.size = sizeof *four;
  } else {
    auto* six = reinterpret_cast<sockaddr_in6*>(address.get());
    six->sin6_family = AF_INET6;
    std::memcpy(&six->sin6_addr, host, sizeof six->sin6_addr);
    address.size = sizeof *six;
  }
  address.set_port(port);
  return address;
}

/// Removes the first word of `rest`, and the space after it, and returns the word.
std::string_view next_word(std::string_view& rest) noexcept {
  const std::string_view word = rest.substr(0, rest.find(' '));
  rest.remove_prefix(std::min(word.size() + 1, rest.size()));
  return word;
}

/// Reads an address as inet_ntop(3) writes it, with a port of 0.
bool read_address(std::string_view text, int family, SocketAddress& out) noexcept {
  std::array<char, INET6_ADDRSTRLEN> copy{};
  if (text.size() >= copy.size() || text.find('\0') != text.npos) return false;
  std::copy(text.begin(), text.end(), copy.begin());
  in6_addr host{};
  if (inet_pton(family, copy.data(), &host) != 1) return false;
  out = make_address(family, &host, 0);
  return true;
}

/// Reads a port: decimal digits without leading zeros.
bool read_port(std::string_view text, std::uint16_t& port) noexcept {
  if (text.size() > 1 && text.front() == '0') return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size();
}

bool is_ip(const SocketAddress& address) noexcept {
  return address.family() == AF_INET || address.family() == AF_INET6;
}

/// Converts an IPv4 address to an IPv4-mapped IPv6 address; returns an IPv6 address unchanged.
SocketAddress as_ipv6(const SocketAddress& address) noexcept {
  if (address.family() != AF_INET) return address;
  in6_addr host{};
  host.s6_addr[10] = host.s6_addr[11] = 0xff;
  std::memcpy(&host.s6_addr[12], &reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr, 4);
  return make_address(AF_INET6, &host, address.port());
}

/// Returns the bytes of an IP address in network order.
std::string_view host_bytes(const SocketAddress& address) noexcept {
  if (address.family() == AF_INET)
    return {reinterpret_cast<const char*>(
                &reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr),
            4};
  return {reinterpret_cast<const char*>(
              &reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr),
          16};
}

std::string host_text(const SocketAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(address.family(), host_bytes(address).data(), text.data(), text.size());
  return text.data();
}

void append_number(std::string& to, std::size_t number) {
  to += static_cast<char>(number >> 8 & 0xff);
  to += static_cast<char>(number & 0xff);
}

}  // namespace

std::size_t ProxyHeaderReader::read(std::span<const std::byte> bytes) noexcept {
  std::size_t taken = 0;
  while (taken < bytes.size() && status_ == Status::kIncomplete) {
    const auto byte = std::to_integer<std::uint8_t>(bytes[taken++]);
    if (count_ == 0) binary_ = static_cast<char>(byte) == kSignature.front();
    if (binary_)
      read_binary(byte);
    else
      read_text(static_cast<char>(byte));
  }
  return taken;
}

void ProxyHeaderReader::malformed(std::string_view problem) noexcept {
  status_ = Status::kMalformed;
  problem_ = problem;
}

// --- reading a header of version 1 ---------------------------------------------------------------

void ProxyHeaderReader::read_text(char byte) noexcept {
  if (count_ < kTextBegin.size() && byte != kTextBegin[count_]) return malformed(kMissing);
  const bool after_cr = count_ != 0 && bytes_[count_ - 1] == '\r';
  if (after_cr != (byte == '\n')) return malformed("must end with CR and LF");
  bytes_[count_++] = static_cast<std::uint8_t>(byte);
  if (byte == '\n')
    read_line();
  else if (count_ == kLongestLine)
    malformed("is longer than 107 bytes");
}

void ProxyHeaderReader::read_line() noexcept {
  std::string_view rest(reinterpret_cast<const char*>(bytes_.data()), count_ - 2);
  rest.remove_prefix(kTextBegin.size());
  const std::string_view family = next_word(rest);
  status_ = Status::kComplete;
  // In a PROXY header, whatever follows the family UNKNOWN is ignored.
  if (family == "UNKNOWN") return;
  if (family != "TCP4" && family != "TCP6")
    return malformed("must name TCP4, TCP6 or UNKNOWN after PROXY");
  const int kind = family == "TCP4" ? AF_INET : AF_INET6;
  const std::string_view client = next_word(rest), server = next_word(rest),
                         client_port = next_word(rest);
  SocketAddress from, to;
  std::uint16_t from_port = 0, to_port = 0;
  if (!read_address(client, kind, from) || !read_address(server, kind, to) ||
      !read_port(client_port, from_port) || !read_port(rest, to_port))
    return malformed(kBadAddress);
  client_ = from;
  client_.set_port(from_port);
}

// --- reading a header of version 2 ---------------------------------------------------------------

void ProxyHeaderReader::read_binary(std::uint8_t byte) noexcept {
  if (count_ < kSignature.size() && static_cast<char>(byte) != kSignature[count_])
    return malformed(kMissing);
  if (count_ < bytes_.size()) bytes_[count_] = byte;
  ++count_;
  if (count_ == kFixed) fixed_part_read();
  if (status_ == Status::kIncomplete && count_ == end_ && count_ >= kFixed) take_addresses();
}

void ProxyHeaderReader::fixed_part_read() noexcept {
  const unsigned version = bytes_[12] >> 4, command = bytes_[12] & 0xf, family = bytes_[13] >> 4,
                 protocol = bytes_[13] & 0xf;
  const std::size_t length = static_cast<std::size_t>(bytes_[14]) << 8 | bytes_[15];
  if (version != 2) return malformed("has an unknown version");
  if (command != kLocal && command != kProxy) return malformed("has an unknown command");
  if (kFixed + length > kMost) return malformed("is longer than 4096 bytes");
  // In a PROXY header with the command LOCAL, the address family is ignored.
  if (command == kProxy) {
    if (family > kUnix || protocol > kDatagram) return malformed("has an unknown address family");
    if (length < size_of_addresses(family)) return malformed("is too short for its addresses");
  }
  end_ = kFixed + length;
}

void ProxyHeaderReader::take_addresses() noexcept {
  status_ = Status::kComplete;
  const unsigned command = bytes_[12] & 0xf, family = bytes_[13] >> 4, protocol = bytes_[13] & 0xf;
  if (command == kLocal || protocol != kStream || (family != kInet && family != kInet6)) return;
  // The order in the header is: client's host, server's host, client's port, server's port.
  const std::size_t host = family == kInet ? 4 : 16;
  const std::uint8_t* const port = &bytes_[kFixed + 2 * host];
  client_ = make_address(family == kInet ? AF_INET : AF_INET6, &bytes_[kFixed],
                         static_cast<std::uint16_t>(port[0] << 8 | port[1]));
}

// --- making a header -----------------------------------------------------------------------------

std::string proxy_header(ProxyVersion version, const SocketAddress& client,
                         const SocketAddress& server) {
  const bool known = is_ip(client);
  SocketAddress from = client, to = server;
  if (known && !is_ip(to)) {
    const in6_addr zeros{};
    to = make_address(from.family(), &zeros, 0);
  }
  if (known && from.family() != to.family()) {
    from = as_ipv6(from);
    to = as_ipv6(to);
  }
  const bool four = from.family() == AF_INET;
  std::string header;
  if (version == ProxyVersion::kV1) {
    header = kTextBegin;
    if (!known) return header + "UNKNOWN\r\n";
    header += four ? "TCP4 " : "TCP6 ";
    header += host_text(from) + ' ' + host_text(to) + ' ' + std::to_string(from.port()) + ' ' +
              std::to_string(to.port()) + "\r\n";
    return header;
  }
  const unsigned family = known ? (four ? kInet : kInet6) : kUnspec;
  header = kSignature;
  header += static_cast<char>(2 << 4 | kProxy);
  header += static_cast<char>(known ? family << 4 | kStream : 0);
  append_number(header, size_of_addresses(family));
  if (!known) return header;
  header.append(host_bytes(from)).append(host_bytes(to));
  append_number(header, from.port());
  append_number(header, to.port());
  return header;
}

}}  // namespace conn
