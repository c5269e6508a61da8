// SPDX-License-Identifier: BSD-3-Clause
// TLS on several loops: tickets, sessions and certificates belong to the type, and are the same on
// each loop.
#if AECONN_TLS

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "conn/tcp/tcp_type.h"
#include "conn/tls/context_source.h"
#include "tests/support/catch.h"
#include "tests/support/group_kit.h"
#include "tests/support/no_descriptors.h"
#include "tests/support/tls_kit.h"

using conn::ConnectionPtr;
using conn::Options;
using conn::Spread;
using conn::State;
using testing::GroupServer;
using testing::info_of;
using testing::TlsSite;

namespace {

using Counts = std::vector<std::uint64_t>;

/// A server on several loops with types of its own; the client uses TlsSite. Connections go to the
/// loops in turn.
struct Group : TlsSite {
  explicit Group(const Options& server_options = {}, const Options& client_options = {},
                 Spread spread = Spread::round_robin())
      : TlsSite({}, client_options) {
    registry.add(std::make_unique<conn::tcp::TcpType>());
    registry.add(std::make_unique<conn::tls::TlsType>(registry.require("tcp")));
    type().configure(options_of(identity).merged_with(server_options));
    served = std::make_unique<GroupServer>(registry, conn::Endpoint::parse("tls://127.0.0.1:0"), 3,
                                           std::move(spread));
  }
  conn::ConnectionType& type() { return registry.require("tls"); }
  /// Connects and exchanges a message; the connection stays, so that the next one goes to another
  /// loop.
  conn::Connection& visit() {
    ConnectionPtr next = connect(served->address());
    INFO(next->last_error());
    REQUIRE(next->state() == State::kConnected);
    testing::echo(loop, *next);  // TLS 1.3 sends its tickets before the answer
    clients.push_back(std::move(next));
    return *clients.back();
  }

  conn::Registry registry;
  std::unique_ptr<GroupServer> served;
  std::vector<ConnectionPtr> clients;
};

}  // namespace

TEST_CASE("tls group: a client resumes on another loop than the one it got its session from",
          "[group][tls][resumption]") {
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  const std::string kind = GENERATE(as<std::string>{}, "tickets", "cache");
  CAPTURE(version, kind);
  Group group({{"resumption", kind}}, {{"max-version", version}});
  CHECK(info_of(group.visit(), "resumed") == "no");
  for (std::size_t i = 1; i < 6; ++i) {
    CAPTURE(i);
    CHECK(info_of(group.visit(), "resumed") == "yes");
    Counts expected{0, 0, 0};
    for (std::size_t each = 0; each <= i; ++each) ++expected[each % 3];
    CHECK(group.served->assigned() == expected);
  }
}

TEST_CASE("tls group: new certificates and settings are those of every loop at once",
          "[group][tls][reload]") {
  Group group({}, {{"resumption", "no"}});  // a resumed session would include its certificate
  const auto seen_by_all = [&] {
    std::vector<std::string> names, certificates;
    for (int i = 0; i < 3; ++i) {
      conn::Connection& here = group.visit();
      names.push_back(here.peer_user());
      certificates.push_back(here.peer_certificate());
    }
    CHECK(std::count(certificates.begin(), certificates.end(), certificates.front()) == 3);
    CHECK_FALSE(certificates.front().empty());
    return names;
  };
  using Names = std::vector<std::string>;
  CHECK(seen_by_all() == Names{"server", "server", "server"});
  for (const std::string name : {"second", "third"}) {
    const auto next = group.ca.issue({.common_name = name, .names = {"IP:127.0.0.1"}});
    group.type().configure(group.options_of(next));
    CHECK(seen_by_all() == Names{name, name, name});
  }
  CHECK(group.served->assigned() == Counts{3, 3, 3});
  for (const ConnectionPtr& each : group.clients) testing::echo(group.loop, *each);
}

TEST_CASE("tls group: with reload=auto one loop reads changed files, and all use them",
          "[group][tls][reload]") {
  Group group({}, {{"resumption", "no"}});
  const std::string cert = group.folder.path() + "/watched.pem";
  const auto install = [&](const testing::Identity& id) {
    std::ofstream(cert) << std::ifstream(id.chain).rdbuf() << std::ifstream(id.key).rdbuf();
  };
  install(group.ca.issue({.common_name = "first", .names = {"IP:127.0.0.1"}}));
  group.type().configure({{"cert", cert}, {"reload", "auto"}});
  const auto reloads = [&] {
    std::atomic<std::uint64_t> sum{0};
    group.served->group.on_each([&](ae::EventLoop& loop, std::size_t) {
      for (const auto& [key, value] : group.type().statistics(loop))
        if (key == "reloads") sum += value;
    });
    return sum.load();
  };
  for (int i = 0; i < 3; ++i) CHECK(group.visit().peer_user() == "first");
  install(group.ca.issue({.common_name = "second", .names = {"IP:127.0.0.1"}}));
  RUN_UNTIL(group.loop, reloads() == 1);
  for (int i = 0; i < 3; ++i) CHECK(group.visit().peer_user() == "second");
  CHECK(reloads() == 1);
}

TEST_CASE("tls group: with reload=auto the loops do not rely on the one that could not read files",
          "[group][tls][reload]") {
  // In the first round the file is missing, in the second no file can be opened. UBSan needs
  // descriptors where it meets a type for the first time, which it does in the first round.
  const bool missing = GENERATE(true, false);
  Group group({}, {{"resumption", "no"}});
  ae::LoopGroup& loops = group.served->group;
  const std::string cert = group.folder.path() + "/watched.pem";
  const auto install = [&](const testing::Identity& id) {
    std::ofstream(cert) << std::ifstream(id.chain).rdbuf() << std::ifstream(id.key).rdbuf();
  };
  install(group.ca.issue({.common_name = "first", .names = {"IP:127.0.0.1"}}));
  const testing::Identity second =
      group.ca.issue({.common_name = "second", .names = {"IP:127.0.0.1"}});
  group.type().configure({{"cert", cert}, {"reload", "auto"}});
  for (int i = 0; i < 3; ++i) CHECK(group.visit().peer_user() == "first");
  std::atomic<std::uint64_t> told{0};
  group.served->listener->on_refused([&](const conn::Failure&) {
    ++told;
    for (std::size_t i = 0; i < loops.size(); ++i)
      if (loops.thread(i) == std::this_thread::get_id()) loops.loop(i)->stop();
  });
  const auto others_notice = [] {
    std::this_thread::sleep_for(2 * conn::tls::ContextSource::kQuiet);
  };
  if (missing) {
    REQUIRE(std::remove(cert.c_str()) == 0);
    RUN_UNTIL(group.loop, told != 0);
    others_notice();
    install(second);
  } else {
    install(second);
    const testing::NoNewDescriptors none;
    RUN_UNTIL(group.loop, told != 0);
    others_notice();
  }
  const auto reloaded = [&] {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < loops.size(); ++i) {
      if (!loops.poster(i).open()) continue;
      loops.ask(i, [&](ae::EventLoop& loop) {
        for (const auto& [key, value] : group.type().statistics(loop))
          if (key == "reloads") sum += value;
      });
    }
    return sum;
  };
  RUN_UNTIL(group.loop, reloaded() == 1);
  for (int i = 0; i < 2; ++i) CHECK(group.visit().peer_user() == "second");
  CHECK(told == 1);
}

TEST_CASE("tls group: the kernel spreads it, as what it is over", "[group][tls]") {
  Group group({}, {}, Spread::kernel());
  for (int i = 0; i < 60; ++i) (void)group.visit();
  const Counts open = group.served->open();
  CHECK(open[0] + open[1] + open[2] == 60);
  // Assigned by a hash: the probability that one of three loops gets none of 60 is 1e-10.
  CHECK(*std::min_element(open.begin(), open.end()) > 0);
  CHECK(group.served->accepted() == 60);
  CHECK_FALSE(group.served->wrong_thread());
}

#endif
