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
    MetricsServer server(site.loop, site.registry,
                         [&](const MetricsServer::Then& then) { then(text); });
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

TEST_CASE("kv metrics: who is slow, and who is never answered, is closed", "[kv][http][limits]") {
  const std::string sent = GENERATE("", "GET /met", kRequest);
  CAPTURE(sent);
  testing::Site site(testing::transports().front());
  MetricsServer::Then later;
  MetricsServer server(
      site.loop, site.registry, [&](MetricsServer::Then then) { later = std::move(then); }, 50ms);
  server.listen(site.fresh().to_string());
  conn::ConnectionPtr client = site.connect(conn::Endpoint::parse(server.urls().front()));
  RUN_UNTIL(site.loop, client->state() == conn::State::kConnected);
  if (!sent.empty()) testing::send(site.loop, *client, sent);
  bool closed = false;
  client->set_close_handler([&closed](conn::Connection&) { closed = true; });
  RUN_UNTIL(site.loop, closed);
  REQUIRE(static_cast<bool>(later) == (sent == kRequest));
  if (later) later("too late");  // the client is gone
}

TEST_CASE("kv metrics: a text that comes after the server's end is nobody's", "[kv][http]") {
  testing::Site site(testing::transports().front());
  MetricsServer::Then later;
  {
    MetricsServer server(site.loop, site.registry,
                         [&](MetricsServer::Then then) { later = std::move(then); });
    server.listen(site.fresh().to_string());
    conn::ConnectionPtr client = site.connect(conn::Endpoint::parse(server.urls().front()));
    RUN_UNTIL(site.loop, client->state() == conn::State::kConnected);
    testing::send(site.loop, *client, kRequest);
    RUN_UNTIL(site.loop, static_cast<bool>(later));
  }
  later("text");
}

TEST_CASE("kv metrics: more clients than there may be are closed", "[kv][http][limits]") {
  testing::Site site(testing::transports().front());
  MetricsServer server(site.loop, site.registry, [](const MetricsServer::Then&) {});
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
