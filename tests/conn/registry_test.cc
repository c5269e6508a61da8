// SPDX-License-Identifier: BSD-3-Clause
// Registry: the transports of a program.

#include "conn/registry.h"

#include "conn/error.h"
#include "conn/tcp/tcp_type.h"
#include "conn/tcp/unix_type.h"
#include "tests/support/any_loop.h"
#include "tests/support/catch.h"

using conn::Registry;
using testing::Contains;

TEST_CASE("registry: types are found by their name", "[conn][registry]") {
  Registry registry;
  REQUIRE(registry.find("tcp") == nullptr);
  conn::ConnectionType& tcp = registry.add(std::make_unique<conn::tcp::TcpType>());
  registry.add(std::make_unique<conn::tcp::UnixType>());
  REQUIRE(registry.find("tcp") == &tcp);
  REQUIRE(&registry.require("tcp") == &tcp);
  REQUIRE(registry.types().size() == 2);
}

TEST_CASE("registry: a name is given once", "[conn][registry]") {
  Registry registry;
  registry.add(std::make_unique<conn::tcp::TcpType>());
  REQUIRE_THROWS_WITH(registry.add(std::make_unique<conn::tcp::TcpType>()),
                      "the transport tcp is already registered");
  REQUIRE(registry.types().size() == 1);
}

TEST_CASE("registry: an unknown name is answered with the known ones", "[conn][registry]") {
  Registry registry;
  REQUIRE_THROWS_WITH(registry.require("tcp"), "there is no transport tcp; there is none");
  registry.add(std::make_unique<conn::tcp::TcpType>());
  REQUIRE_THROWS_WITH(registry.require("tpc"), "there is no transport tpc; there is tcp");
  registry.add(std::make_unique<conn::tcp::UnixType>());
  REQUIRE_THROWS_WITH(registry.require("tpc"), "there is no transport tpc; there are tcp, unix");
}

TEST_CASE("registry: an unavailable transport says why", "[conn][registry]") {
  Registry registry;
  registry.add_unavailable("tcp", "this machine has no network");
  REQUIRE(registry.find("tcp") == nullptr);
  REQUIRE_THROWS_WITH(registry.require("tcp"), "tcp is not available: this machine has no network");
  registry.add(std::make_unique<conn::tcp::TcpType>());
  REQUIRE_NOTHROW(registry.require("tcp"));
}

TEST_CASE("registry: the code tells an unavailable transport from an unknown one",
          "[conn][registry]") {
  Registry registry;
  registry.add(std::make_unique<conn::tcp::TcpType>());
  registry.add_unavailable("rdma", "it was built without");
  registry.add_unavailable("tls", "it was built without");
  const auto code_of = [&](const char* name) {
    try {
      (void)registry.require(name);
    } catch (const conn::Error& error) {
      return error.code();
    }
    return make_error_code(std::errc::io_error);
  };
  CHECK(code_of("rdma") == std::errc::protocol_not_supported);
  CHECK(code_of("rdma|tls") == std::errc::protocol_not_supported);
  CHECK_FALSE(code_of("smoke"));
  CHECK_FALSE(code_of("tcp|smoke"));
  CHECK_FALSE(code_of("rdma|smoke"));
}

TEST_CASE("registry: listen, create and connect follow the scheme", "[conn][registry]") {
  Registry registry;
  registry.add(std::make_unique<conn::tcp::TcpType>());
  testing::AnyLoop loop;
  conn::ListenerPtr listener = registry.listen(loop, "tcp://127.0.0.1:0", [](auto) {});
  const conn::Endpoint where = listener->endpoints().front();
  REQUIRE(registry.create(loop, where)->type().name() == "tcp");
  conn::State state = conn::State::kNone;
  conn::ConnectionPtr connection =
      registry.connect(loop, where.to_string(), [&](conn::Connection& c) { state = c.state(); });
  REQUIRE(state == conn::State::kNone);  // never before connect() returns
  while (state == conn::State::kNone) loop.process_events(ae::kFullIteration);
  REQUIRE(state == conn::State::kConnected);
  REQUIRE_FALSE(registry.has_pending_data(loop));
  REQUIRE(registry.process_pending_data(loop) == 0);
}

TEST_CASE("registry: mistakes in a URL throw", "[conn][registry]") {
  Registry registry;
  registry.add(std::make_unique<conn::tcp::TcpType>());
  testing::AnyLoop loop;
  const auto accept = [](conn::ConnectionPtr) {};
  REQUIRE_THROWS_WITH(registry.listen(loop, "nonsense", accept), Contains("not a URL"));
  REQUIRE_THROWS_WITH(registry.listen(loop, "quic://h:1", accept), Contains("no transport quic"));
  REQUIRE_THROWS_WITH(registry.connect(loop, "tcp://127.0.0.1", {}), Contains("needs a port"));
  REQUIRE_THROWS_WITH(registry.connect(loop, "tcp://h:1?colour=red", {}),
                      Contains("tcp has no option colour"));
}
