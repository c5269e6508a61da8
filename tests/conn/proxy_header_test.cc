// SPDX-License-Identifier: BSD-3-Clause
// conn/kit/proxy_header: headers of the PROXY protocol, read in pieces and written.

#include "conn/kit/proxy_header.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "conn/kit/resolver.h"
#include "tests/support/catch.h"

using conn::proxy_header;
using conn::ProxyVersion;
using conn::SocketAddress;
using Reader = conn::ProxyHeaderReader;
using Status = Reader::Status;
using namespace std::string_literals;

namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// A header of version 2 with these bytes as version and command, family, and payload.
std::string v2(unsigned command, unsigned family, const std::string& payload) {
  std::string header = "\r\n\r\n\0\r\nQUIT\n"s;
  header += static_cast<char>(command);
  header += static_cast<char>(family);
  header += static_cast<char>(payload.size() >> 8);
  header += static_cast<char>(payload.size() & 0xff);
  return header + payload;
}

SocketAddress address(const std::string& host, std::uint16_t port) {
  SocketAddress made;
  REQUIRE(conn::numeric_address(host, port, made));
  return made;
}

const std::string kFour = "\x0a\x01\x02\x03\x0a\x00\x00\x09\x9c\xb0\x00\x50"s;
const std::string kSix = std::string("\xfd") + std::string(14, '\0') + "\x01" + "\xfd" +
                         std::string(14, '\0') + "\x02" + "\x9c\xb0\x00\x50"s;

struct Good {
  std::string header;
  std::string client;  // empty: the header has none
};

std::vector<Good> good_headers() {
  return {
      {"PROXY TCP4 10.1.2.3 10.0.0.9 40112 80\r\n", "10.1.2.3:40112"},
      {"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", "255.255.255.255:65535"},
      {"PROXY TCP4 0.0.0.0 0.0.0.0 0 0\r\n", "0.0.0.0:0"},
      {"PROXY TCP6 fd00::1 fd00::2 40112 80\r\n", "[fd00::1]:40112"},
      {"PROXY TCP6 FFFF:FFFF:FFFF:FFFF:FFFF:FFFF:FFFF:FFFF "
       "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
       "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"},
      {"PROXY UNKNOWN\r\n", ""},
      {"PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff "
       "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
       ""},
      {v2(0x21, 0x11, kFour), "10.1.2.3:40112"},
      {v2(0x21, 0x21, kSix), "[fd00::1]:40112"},
      {v2(0x21, 0x11, kFour + "\x04\x00\x01\x00"s), "10.1.2.3:40112"},  // an additional field
      {v2(0x21, 0x11, kFour + std::string(Reader::kMost - 16 - kFour.size(), 'x')),
       "10.1.2.3:40112"},
      {v2(0x21, 0x31, std::string(216, 'p')), ""},  // Unix sockets
      {v2(0x21, 0x12, kFour), ""},                  // UDP
      {v2(0x21, 0x00, ""), ""},
      {v2(0x21, 0x00, "ignored"), ""},
      {v2(0x20, 0x00, ""), ""},      // LOCAL
      {v2(0x20, 0x11, kFour), ""},   // its addresses are ignored
      {v2(0x20, 0xff, "what"), ""},  // its family, too
  };
}

struct Bad {
  std::string bytes;
  std::string_view problem;
};

std::vector<Bad> bad_headers() {
  const std::string_view missing = "is missing: the first bytes are others",
                         addresses =
                             "must have two addresses of the family it names, and two ports",
                         end = "must end with CR and LF",
                         family =
                             "must name TCP4, TCP6 or "
                             "UNKNOWN after PROXY";
  const auto line = [](const std::string& rest) { return "PROXY " + rest + "\r\n"; };
  return {
      {"GET / HTTP/1.1\r\n", missing},
      {"PING\r\n", missing},
      {"proxy TCP4 ", missing},
      {"PROXY\tTCP4 ", missing},
      {"\n", missing},
      {"\0"s, missing},
      {"\r\n\r\n\0\r\nQUIX"s, missing},
      {"\r\n\r\n\r"s, missing},
      {"\x16\x03\x01"s, missing},  // TLS
      {"PROXY TCP4 10.1.2.3 10.0.0.9 40112 80\n", end},
      {"PROXY TCP4 10.1.2.3\r10.0.0.9 40112 80\r\n", end},
      {"PROXY \r\r\n", end},
      {line(""), family},
      {line("TCP5 10.1.2.3 10.0.0.9 40112 80"), family},
      {line(" TCP4 10.1.2.3 10.0.0.9 40112 80"), family},
      {line("UNKNOWNS"), family},
      {line("tcp4 10.1.2.3 10.0.0.9 40112 80"), family},
      {line("TCP4"), addresses},
      {line("TCP4 10.1.2.3 10.0.0.9 40112"), addresses},
      {line("TCP4 10.1.2.3 10.0.0.9 40112 "), addresses},
      {line("TCP4 10.1.2.3 10.0.0.9 40112 80 1"), addresses},
      {line("TCP4 10.1.2.3 10.0.0.9 40112 80 "), addresses},
      {line("TCP4 10.1.2.3  10.0.0.9 40112 80"), addresses},
      {line("TCP4 10.1.2.3 10.0.0.9 040112 80"), addresses},
      {line("TCP4 10.1.2.3 10.0.0.9 40112 65536"), addresses},
      {line("TCP4 10.1.2.3 10.0.0.9 -1 80"), addresses},
      {line("TCP4 10.1.2.3 10.0.0.9 +1 80"), addresses},
      {line("TCP4 10.1.2.3 10.0.0.9 1a 80"), addresses},
      {line("TCP4 10.1.2.256 10.0.0.9 1 80"), addresses},
      {line("TCP4 10.1.2.03 10.0.0.9 1 80"), addresses},
      {line("TCP4 10.1.2 10.0.0.9 1 80"), addresses},
      {line("TCP4 10.1.2.3\0x 10.0.0.9 1 80"s), addresses},
      {line("TCP4 fd00::1 fd00::2 1 80"), addresses},
      {line("TCP6 10.1.2.3 10.0.0.9 1 80"), addresses},
      {line("TCP6 fd00::1 10.0.0.9 1 80"), addresses},
      {line("TCP6 fe80::1%lo fd00::2 1 80"), addresses},
      {line("TCP6 fd00::1::2 fd00::2 1 80"), addresses},
      {line("TCP6 " + std::string(60, '1') + " fd00::2 1 80"), addresses},
      {"PROXY UNKNOWN" + std::string(94, 'x'), "is longer than 107 bytes"},
      {v2(0x11, 0x11, kFour), "has an unknown version"},
      {v2(0x31, 0x11, kFour), "has an unknown version"},
      {v2(0x22, 0x11, kFour), "has an unknown command"},
      {v2(0x21, 0x41, kFour), "has an unknown address family"},
      {v2(0x21, 0x13, kFour), "has an unknown address family"},
      {v2(0x21, 0x11, kFour.substr(1)), "is too short for its addresses"},
      {v2(0x21, 0x11, ""), "is too short for its addresses"},
      {v2(0x21, 0x21, kSix.substr(1)), "is too short for its addresses"},
      {v2(0x21, 0x31, std::string(215, 'p')), "is too short for its addresses"},
      {v2(0x21, 0x11, std::string(Reader::kMost - 15, 'x')), "is longer than 4096 bytes"},
      {v2(0x20, 0x00, std::string(65535, 'x')), "is longer than 4096 bytes"},
  };
}

}  // namespace

TEST_CASE("proxy header: good headers give the client, however they are divided",
          "[conn][proxy-protocol]") {
  for (const auto& [header, client] : good_headers()) {
    INFO(header.substr(0, 120));
    const std::string all = header + "PING\r\n";
    const std::size_t step = header.size() > 300 ? 37 : 1;
    for (std::size_t split = 0; split <= header.size(); split += step) {
      Reader reader;
      REQUIRE(reader.read(bytes_of(header.substr(0, split))) == split);
      // The bytes behind the header belong to the program.
      if (split < header.size()) {
        REQUIRE(reader.status() == Status::kIncomplete);
        REQUIRE(reader.read(bytes_of(std::string_view(all).substr(split))) ==
                header.size() - split);
      }
      REQUIRE(reader.status() == Status::kComplete);
      REQUIRE(reader.read(bytes_of("more")) == 0);
      REQUIRE(reader.client().to_string() == client);
      REQUIRE(reader.problem().empty());
    }
    Reader by_byte;
    for (const char each : header) REQUIRE(by_byte.read(bytes_of({&each, 1})) == 1);
    REQUIRE(by_byte.status() == Status::kComplete);
  }
}

TEST_CASE("proxy header: what is wrong is said in one way, however it is divided",
          "[conn][proxy-protocol]") {
  for (const auto& [bytes, problem] : bad_headers()) {
    INFO(bytes.substr(0, 120));
    for (std::size_t split = 0; split <= std::min<std::size_t>(bytes.size(), 300); ++split) {
      Reader reader;
      (void)reader.read(bytes_of(bytes.substr(0, split)));
      (void)reader.read(bytes_of(std::string_view(bytes).substr(split)));
      REQUIRE(reader.status() == Status::kMalformed);
      REQUIRE(reader.problem() == problem);
      REQUIRE(reader.client().size == 0);
      REQUIRE(reader.read(bytes_of("more")) == 0);
    }
  }
}

TEST_CASE("proxy header: what is too long is refused before it has come",
          "[conn][proxy-protocol]") {
  Reader text;
  (void)text.read(bytes_of("PROXY UNKNOWN" + std::string(93, 'x')));
  REQUIRE(text.status() == Status::kIncomplete);
  (void)text.read(bytes_of("x"));
  REQUIRE(text.status() == Status::kMalformed);
  Reader binary;
  (void)binary.read(bytes_of(v2(0x21, 0x11, std::string(5000, 'x')).substr(0, 16)));
  REQUIRE(binary.status() == Status::kMalformed);
}

TEST_CASE("proxy header: what is written is read again", "[conn][proxy-protocol]") {
  const auto version = GENERATE(ProxyVersion::kV1, ProxyVersion::kV2);
  const SocketAddress four = address("10.1.2.3", 40112), six = address("fd00::1", 40112), none;
  SocketAddress path;
  path.storage.ss_family = AF_UNIX;
  path.size = sizeof path.storage.ss_family;
  const auto client = [&](const SocketAddress& from, const SocketAddress& to) {
    const std::string header = proxy_header(version, from, to);
    Reader reader;
    REQUIRE(reader.read(bytes_of(header)) == header.size());
    REQUIRE(reader.status() == Status::kComplete);
    return reader.client().to_string();
  };
  CHECK(client(four, address("10.0.0.9", 80)) == "10.1.2.3:40112");
  CHECK(client(six, address("fd00::2", 80)) == "[fd00::1]:40112");
  CHECK(client(six, four) == "[fd00::1]:40112");
  CHECK(client(four, six) == "[::ffff:10.1.2.3]:40112");
  CHECK(client(four, none) == "10.1.2.3:40112");
  CHECK(client(six, path) == "[fd00::1]:40112");
  CHECK(client(none, four).empty());
  CHECK(client(path, four).empty());
}

TEST_CASE("proxy header: the bytes written are those of the protocol", "[conn][proxy-protocol]") {
  const SocketAddress client = address("10.1.2.3", 40112), server = address("10.0.0.9", 80);
  CHECK(proxy_header(ProxyVersion::kV1, client, server) ==
        "PROXY TCP4 10.1.2.3 10.0.0.9 40112 80\r\n");
  CHECK(proxy_header(ProxyVersion::kV1, address("fd00::1", 40112), address("fd00::2", 80)) ==
        "PROXY TCP6 fd00::1 fd00::2 40112 80\r\n");
  CHECK(proxy_header(ProxyVersion::kV1, {}, server) == "PROXY UNKNOWN\r\n");
  CHECK(proxy_header(ProxyVersion::kV2, client, server) == v2(0x21, 0x11, kFour));
  CHECK(proxy_header(ProxyVersion::kV2, address("fd00::1", 40112), address("fd00::2", 80)) ==
        v2(0x21, 0x21, kSix));
  CHECK(proxy_header(ProxyVersion::kV2, {}, server) == v2(0x21, 0x00, ""));
  // A scope is valid on one machine only.
  CHECK(proxy_header(ProxyVersion::kV1, address("fe80::1%lo", 1), address("fe80::2", 2)) ==
        "PROXY TCP6 fe80::1 fe80::2 1 2\r\n");
}
