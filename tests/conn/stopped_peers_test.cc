// SPDX-License-Identifier: BSD-3-Clause
// A process that is stopped (SIGSTOP) stays connected, over each transport.
//
// Goal: a slow peer is not treated as a dead one. Method: for each transport a process of its own,
// all stopped together for longer than three keepalives; then each continues and echoes what was
// sent before, meanwhile and afterwards.

#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/testing.h"

#if AECONN_RDMA
#include "tests/support/rdma_kit.h"

using namespace std::chrono_literals;
using conn::ConnectionPtr;
using conn::Endpoint;
using testing::Site;
using testing::Transport;

namespace {

Endpoint with_keepalive(Endpoint at, const conn::ConnectionType& type) {
  const bool rdma = type.name().find("rdma") != std::string::npos;
  if (type.find_option("keepalive") != nullptr) at.options.set("keepalive", rdma ? "100ms" : "1s");
  return at;
}

/// A process that connects to the address it is sent, and echoes.
struct Echoing {
  explicit Echoing(const Transport& transport)
      : orders([] {
          std::array<int, 2> ends{};
          if (pipe(ends.data()) != 0) std::abort();
          return ends;
        }()),
        child([this, transport] {
          ::close(orders[1]);
          std::string url;
          for (char c; ::read(orders[0], &c, 1) == 1 && c != '\n';) url += c;
          Site site(transport);
          testing::EchoServer echo;
          ConnectionPtr connection = site.type.create(site.loop);
          if (!connection->connect_blocking(Endpoint::parse(url), 60s)) _exit(3);
          echo.handler()(std::move(connection));
          while (echo.open() != 0) site.loop.process_events(ae::kFullIteration);
        }) {
    ::close(orders[0]);
  }
  ~Echoing() { ::close(orders[1]); }
  Echoing(const Echoing&) = delete;
  Echoing& operator=(const Echoing&) = delete;
  std::array<int, 2> orders;
  testing::Child child;
};

struct Subject {
  explicit Subject(const Transport& its) : transport(its), process(its) {}
  void begin() {
    site = std::make_unique<Site>(transport);
    listener = site->type.listen(site->loop, with_keepalive(site->fresh(), site->type),
                                 [this](ConnectionPtr arrival) { ours = std::move(arrival); });
    const std::string line =
        with_keepalive(testing::address_of(*listener), site->type).to_string() + "\n";
    REQUIRE(::write(process.orders[1], line.data(), line.size()) ==
            static_cast<ssize_t>(line.size()));
    RUN_UNTIL(site->loop, ours != nullptr);
    echo("before");
  }
  void echo(const std::string& text) {
    testing::send(site->loop, *ours, text);
    REQUIRE(testing::receive(site->loop, *ours, text.size()) == text);
  }
  const Transport transport;
  Echoing process;
  std::unique_ptr<Site> site;
  conn::ListenerPtr listener;
  ConnectionPtr ours;
};

}  // namespace

TEST_CASE("connection: a peer whose process is stopped is still connected afterwards",
          "[conformance][conn]") {
  (void)testing::test_registry();  // initializes what all processes share
  std::vector<std::unique_ptr<Subject>> subjects;
  for (const Transport& each : testing::transports())
    if (each.reaches_far && !each.list) subjects.push_back(std::make_unique<Subject>(each));
  for (const auto& each : subjects) each->begin();
  for (const auto& each : subjects) {
    each->process.child.signal(SIGSTOP);
    testing::send(each->site->loop, *each->ours, "meanwhile");
  }
  const ae::TimePoint until = testing::now() + 3s;  // how long they are stopped
  while (testing::now() < until)
    for (const auto& each : subjects) {
      each->site->loop.add_time_event(2ms, [] { return ae::kNoMore; });
      each->site->loop.process_events(ae::kFullIteration);
    }
  for (const auto& each : subjects) {
    CAPTURE(each->transport.name);
    INFO(each->ours->last_error());
    CHECK(each->ours->state() == conn::State::kConnected);
    each->process.child.signal(SIGCONT);
    CHECK(testing::receive(each->site->loop, *each->ours, 9) == "meanwhile");
    each->echo("afterwards");
  }
}

#endif  // AECONN_RDMA
