// SPDX-License-Identifier: BSD-3-Clause
// What TLS copies of bytes sent in place: only bytes that have to share a record with others.

#include <array>
#include <cstring>
#include <string>

#include "conn/transports/transports.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

using testing::Pair;

namespace {

std::uint64_t gathered(Pair& pair) {
  for (const auto& [name, value] : pair.type.statistics(pair.loop))
    if (name == "bytes_gathered") return value;
  FAIL("no such statistic");
  return 0;
}

struct Value {
  explicit Value(std::size_t size) {
    while (text.size() < size) text.append(testing::Pattern(3).at(text.size()));
    text.resize(size);
  }
  conn::Outgoing outgoing() {
    return {
        std::as_bytes(std::span(text)),
        [](void* context, std::error_code) noexcept { ++static_cast<Value*>(context)->releases; },
        this};
  }
  std::string text;
  int releases = 0;
};

void put(conn::Connection& connection, std::string_view text) {
  const std::span<std::byte> room = connection.reserve(text.size());
  REQUIRE(room.size() >= text.size());
  std::memcpy(room.data(), text.data(), text.size());
  connection.commit(text.size());
}

}  // namespace

TEST_CASE("tls: a large buffer is encrypted from where it lies", "[tls]") {
  const std::size_t size = GENERATE(1000, 16384, 100'000, 1 << 20);
  Pair pair({.name = "tls"});
  testing::Collector server(*pair.server);
  Value value(size);
  REQUIRE(pair.client->send(value.outgoing()) == static_cast<ssize_t>(size));
  RUN_UNTIL(pair.loop, value.releases == 1 && server.bytes.size() == size);
  REQUIRE(server.bytes == value.text);
  REQUIRE(gathered(pair) == 0);
}

TEST_CASE("tls: a header before a large buffer costs no copy of it where it costs no record",
          "[tls]") {
  Pair pair({.name = "tls"});
  testing::Collector server(*pair.server);
  Value value(1 << 20);
  put(*pair.client, "a header");
  REQUIRE(pair.client->send(value.outgoing()) == 1 << 20);
  RUN_UNTIL(pair.loop, value.releases == 1 && server.bytes.size() == (1 << 20) + 8);
  REQUIRE(server.bytes == "a header" + value.text);
  REQUIRE(gathered(pair) == 0);
}

TEST_CASE("tls: where a record is saved, one record's worth is copied and no more", "[tls]") {
  Pair pair({.name = "tls"});
  testing::Collector server(*pair.server);
  Value value(1 << 20);
  put(*pair.client, "a header");
  REQUIRE(pair.client->send(value.outgoing()) == 1 << 20);
  put(*pair.client, "an end");
  RUN_UNTIL(pair.loop, value.releases == 1 && server.bytes.size() == (1 << 20) + 14);
  REQUIRE(server.bytes == "a header" + value.text + "an end");
  REQUIRE(gathered(pair) <= 16384 + 14);
}

TEST_CASE("tls: small pieces share a record", "[tls]") {
  Pair pair({.name = "tls"});
  testing::Collector server(*pair.server);
  Value one(100), two(200);
  put(*pair.client, "x");
  REQUIRE(pair.client->send(one.outgoing()) == 100);
  REQUIRE(pair.client->send(two.outgoing()) == 200);
  RUN_UNTIL(pair.loop, server.bytes.size() == 301);
  REQUIRE(server.calls == 1);
  REQUIRE(gathered(pair) == 301);
}

TEST_CASE("tls: pieces of any size arrive in order", "[tls]") {
  const std::uint32_t seed = GENERATE(range(1u, 12u));
  std::uint32_t random = seed * 2654435761u;
  Pair pair({.name = "tls"});
  testing::Collector server(*pair.server);
  std::string expected;
  std::vector<std::string> texts;
  std::vector<iovec> vectors;
  for (int i = 0; i < 40; ++i) {
    random = random * 1664525u + 1013904223u;
    const std::uint32_t kind = random >> 30;
    const std::size_t size = kind == 0 ? 0 : kind == 1 ? random % 100 : random % 40'000;
    texts.emplace_back();
    while (texts.back().size() < size)
      texts.back().append(testing::Pattern(seed).at(expected.size() + texts.back().size()));
    texts.back().resize(size);
    expected += texts.back();
  }
  for (std::string& text : texts) vectors.push_back({text.data(), text.size()});
  std::span<iovec> left(vectors);
  pair.client->set_write_handler([&](conn::Connection& here) {
    ssize_t n = here.writev(left.data(), static_cast<int>(left.size()));
    if (n < 0) return;
    for (; !left.empty() && static_cast<std::size_t>(n) >= left.front().iov_len;
         left = left.subspan(1))
      n -= static_cast<ssize_t>(left.front().iov_len);
    if (left.empty()) return here.set_write_handler(nullptr);
    left.front().iov_base = static_cast<char*>(left.front().iov_base) + n;
    left.front().iov_len -= static_cast<std::size_t>(n);
  });
  RUN_UNTIL(pair.loop, server.bytes.size() == expected.size());
  REQUIRE(server.bytes == expected);
}

#if AECONN_TLS && AECONN_RDMA
TEST_CASE("tls: memory is registered with rdma, not with TLS over it", "[tls][rdma][fallback]") {
  conn::Registry registry = conn::all_transports();
  testing::AnyLoop loop;
  std::array<std::byte, 4096> bytes{};
  const auto registered = [&](const char* scheme) {
    const auto memory = registry.require(scheme).register_memory(loop, bytes);
    return memory->of() != nullptr ? std::string(memory->of()->name()) : "";
  };
  for (const char* const scheme : {"tcp", "tls", "rdma", "tls+rdma", "rdma|tls+rdma"}) {
    CAPTURE(scheme);
    // reserve() returns the transport's own memory exactly where memory is registered.
    CHECK(registry.require(scheme).capabilities().in_place == (scheme == std::string("rdma")));
    CHECK(registered(scheme) == (std::string(scheme).starts_with("rdma") ? "rdma" : ""));
  }
  CHECK(registered("tls+rdma|rdma") == "rdma");
}
#endif
