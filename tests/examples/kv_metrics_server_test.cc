// SPDX-License-Identifier: BSD-3-Clause
// GET /metrics over each transport, also with slow clients.

#include "examples/kv_server/metrics_server.h"

#include "tests/support/catch.h"
#include "tests/support/testing.h"

using kv::MetricsServer;
using testing::Contains;
using namespace std::chrono_literals;

namespace {

constexpr const char* kRequest = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";

}  // namespace

TEST_CASE("kv metrics: a long answer over every transport", "[kv][http][rdma-device]") {
  const auto transport = GENERATE(from_range(testing::transports()));
  DYNAMIC_SECTION(transport.name) {
    testing::Site site(transport);
    const std::string text(3'000'000, 'x');
    MetricsServer server(site.loop, site.registry, [&] { return text; });
    server.listen(site.fresh().to_string());
    conn::ConnectionPtr client = site.connect(conn::Endpoint::parse(server.urls().front()));
    RUN_UNTIL(site.loop, client->state() == conn::State::kConnected);
    testing::send(site.loop, *client, kRequest);
    testing::Collector reply(*client);
    RUN_UNTIL(site.loop, reply.bytes.ends_with(text));
    REQUIRE(reply.bytes.starts_with("HTTP/1.1 200 OK\r\n"));
    REQUIRE_THAT(reply.bytes, Contains("Content-Length: 3000000\r\n"));
  }
}

TEST_CASE("kv metrics: who is slow is closed", "[kv][http][limits]") {
  const std::string sent = GENERATE("", "GET /met");
  CAPTURE(sent);
  testing::Site site(testing::transports().front());
  MetricsServer server(
      site.loop, site.registry, [] { return std::string("text"); }, 50ms);
  server.listen(site.fresh().to_string());
  conn::ConnectionPtr client = site.connect(conn::Endpoint::parse(server.urls().front()));
  RUN_UNTIL(site.loop, client->state() == conn::State::kConnected);
  if (!sent.empty()) testing::send(site.loop, *client, sent);
  bool closed = false;
  client->set_close_handler([&closed](conn::Connection&) { closed = true; });
  RUN_UNTIL(site.loop, closed);
}

TEST_CASE("kv metrics: what is no GET /metrics, or too long, gets 404", "[kv][http][limits]") {
  const std::string sent =
      GENERATE(as<std::string>(), "GET / HTTP/1.1\r\n\r\n", "POST /metrics HTTP/1.1\r\n\r\n",
               "*1\r\n$4\r\nPING\r\n\r\n", "GET /metrics HTTP/1.1\r\nX: " + std::string(9000, 'x'));
  CAPTURE(sent.substr(0, 40));
  testing::Site site(testing::transports().front());
  MetricsServer server(site.loop, site.registry, [] { return std::string("text"); });
  server.listen(site.fresh().to_string());
  conn::ConnectionPtr client = site.connect(conn::Endpoint::parse(server.urls().front()));
  RUN_UNTIL(site.loop, client->state() == conn::State::kConnected);
  testing::send(site.loop, *client, sent);
  testing::Collector reply(*client);
  RUN_UNTIL(site.loop, reply.over());
  REQUIRE(reply.bytes.starts_with("HTTP/1.1 404 Not Found\r\n"));
}

TEST_CASE("kv metrics: more clients than there may be are closed", "[kv][http][limits]") {
  testing::Site site(testing::transports().front());
  MetricsServer server(site.loop, site.registry, [] { return std::string(); });
  server.listen(site.fresh().to_string());
  const conn::Endpoint at = conn::Endpoint::parse(server.urls().front());
  std::vector<conn::ConnectionPtr> clients;
  std::size_t closed = 0;
  for (std::size_t i = 0; i < MetricsServer::kMostClients + 3; ++i) {
    clients.push_back(site.connect(at));
    clients.back()->set_close_handler([&closed](conn::Connection&) { ++closed; });
    RUN_UNTIL(site.loop, clients.back()->state() != conn::State::kConnecting);
  }
  RUN_UNTIL(site.loop, closed == 3);
}
