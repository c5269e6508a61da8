// SPDX-License-Identifier: BSD-3-Clause
// Text chosen by a peer or a user, with all byte values, in everything of the library that prints
// it: path(), info(), last_error(), errors about URLs and names. The function that makes it one
// clean line is tested in printable_test.cc.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "conn/endpoint.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;

namespace {

bool is_clean(const std::string& text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; }) &&
         conn::printable(text) == text;
}

/// A socket connected to `path`, with this name in the abstract namespace.
int connect_as(const std::string& name, const std::string& path) {
  const auto address_of = [](const std::string& text, bool abstract) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + (abstract ? 1 : 0), text.data(), text.size());
    return address;
  };
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un from = address_of(name, true), to = address_of(path, false);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&from), size) == 0);
  REQUIRE(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  return fd;
}

/// The error of an attempt with the URL: the exception's text, or the connection's error.
std::string said_of(const conn::Registry& registry, ae::EventLoop& loop, const std::string& url) {
  try {
    const conn::Endpoint endpoint = conn::Endpoint::parse(url);
    registry.require(endpoint.scheme).check(endpoint);
    const ConnectionPtr connection = registry.create(loop, endpoint);
    if (!connection->connect_blocking(endpoint, std::chrono::milliseconds(1)))
      return connection->last_error();
    return connection->path();
  } catch (const conn::Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("foreign text: the name of a Unix peer, each byte of it", "[conn][unix][hostile]") {
  const testing::TempFolder folder;
  const conn::Registry registry = testing::test_registry();
  testing::AnyLoop loop;
  const std::string path = folder.path() + "/s";
  ConnectionPtr server;
  const auto listener = registry.listen(loop, "unix://" + path,
                                        [&](ConnectionPtr next) { server = std::move(next); });
  for (int from = 0; from < 256; from += 64) {
    std::string name = folder.path();  // unique
    for (int c = from; c < from + 64; ++c) name += static_cast<char>(c);
    const int peer = connect_as(name, path);
    RUN_UNTIL(loop, server != nullptr);
    CHECK(server->peer_address() == "@" + name);  // unchanged, for comparisons
    CHECK(is_clean(server->path()));
    for (const auto& [key, value] : server->info()) CHECK(is_clean(key + value));
    // The peer closes with unread bytes: a reset, which is reported with the peer's name.
    REQUIRE(server->write("unread", 6) == 6);
    ::close(peer);
    char byte = 0;
    RUN_UNTIL(loop, server->read(&byte, 1) <= 0 && server->state() != conn::State::kConnected);
    CHECK(is_clean(server->last_error()));
    CHECK(is_clean(server->path()));
    server.reset();
  }
}

TEST_CASE("foreign text: each part of a URL, each byte of it", "[conn][hostile]") {
  const conn::Registry registry = testing::test_registry();
  testing::AnyLoop loop;
  for (int c = 0; c < 256; ++c) {
    const std::string byte(1, static_cast<char>(c));
    for (const std::string& url :
         {byte, "a" + byte + "://x", "tcp" + byte + "://x:1", "tcp|" + byte + "://x:1",
          "tcp://127.0.0.1:" + byte, "tcp://[" + byte + "]:1", "tcp://127.0.0.1:1?" + byte + "=1",
          "tcp://127.0.0.1:1?nodelay=" + byte, "tcp://127.0.0.1:1?source=" + byte,
          "unix:///nowhere/" + byte, "unix:///nowhere/x?mode=" + byte,
          "tls://127.0.0.1:1?ca=/nowhere/" + byte, "tls://127.0.0.1:1?versions=" + byte,
          "memory://nobody" + byte}) {
      const std::string said = said_of(registry, loop, url);
      if (!is_clean(said)) FAIL(c << " in " << conn::printable(url) << ": " << said);
    }
  }
  CHECK(is_clean(said_of(registry, loop, "tcp://a\x1b[2J\nb.invalid:1")));
}
