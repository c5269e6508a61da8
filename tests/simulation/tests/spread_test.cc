// SPDX-License-Identifier: BSD-3-Clause
// The option spread of outgoing connections: a name with several addresses, some of which answer.

#include <map>

#include "conn/kit/address_choice.h"
#include "tests/simulation/room.h"

using namespace simulation;

namespace {

/// Servers at 10.77.0.1, 10.77.0.3 and 10.88.0.1, all on one port; clients connect from 10.77.0.2.
struct Place : Room {
  Place() {
    for (const auto& [name, own] : {std::pair{"sim2", "10.77.0.3"}, {"sim3", "10.88.0.1"}}) {
      devices.push_back(&world.add_device(name, own));
      listeners.push_back(type.listen(
          loop, conn::Endpoint::parse(std::string("rdma://") + own + ":" + port()), log.handler()));
    }
  }
  ~Place() {
    clients.clear();
    log.clients.clear();
    listeners.clear();
  }
  std::string port() const { return std::to_string(address.port); }

  /// Starts a connect; the connection is kept.
  conn::Connection& begin(const std::string& hosts, const std::string& options) {
    const conn::Endpoint to =
        conn::Endpoint::parse("rdma://" + hosts + ":" + port() + "?source=10.77.0.2&" + options);
    clients.push_back(type.create(loop));
    clients.back()->connect(to, [](conn::Connection&) {});
    return *clients.back();
  }
  /// The address that the next connection reached; "" if it failed.
  std::string next(const std::string& hosts, const std::string& options) {
    const conn::Connection& client = begin(hosts, options);
    RUN_UNTIL(loop, client.state() != conn::State::kConnecting);
    return host(client);
  }
  static std::string host(const conn::Connection& client) {
    if (client.state() != conn::State::kConnected) return {};
    return conn::split_address(client.peer_address()).host;
  }
  std::map<std::string, int> by_host() const {
    std::map<std::string, int> all;
    for (const auto& each : clients) ++all[host(*each)];
    return all;
  }

  std::vector<Device*> devices;  // in addition to the first two
  std::vector<conn::ListenerPtr> listeners;
  std::vector<conn::ConnectionPtr> clients;
};

using Counts = std::map<std::string, int>;

}  // namespace

TEST_CASE("simulation: spread=least divides a crowd among the addresses of a place",
          "[simulation][spread]") {
  Place place;
  const std::string hosts = "10.77.0.1,10.77.0.3,10.88.0.1";
  // All at once: connects in progress count, too.
  for (int i = 0; i < 12; ++i) place.begin(hosts, "spread=least");
  RUN_UNTIL(place.loop, place.by_host()[""] == 0);
  CHECK(place.by_host() == Counts{{"10.77.0.1", 4}, {"10.77.0.3", 4}, {"10.88.0.1", 4}});

  // Closed connections no longer count.
  std::erase_if(place.clients, [](const auto& each) { return Place::host(*each) == "10.77.0.3"; });
  place.run_for(10s);
  for (int i = 0; i < 4; ++i) CHECK(place.next(hosts, "spread=least") == "10.77.0.3");
}

TEST_CASE("simulation: without spread the first address has all", "[simulation][spread]") {
  Place place;
  for (int i = 0; i < 4; ++i)
    CHECK(place.next("10.77.0.3,10.77.0.1", "spread=first") == "10.77.0.3");
  for (int i = 0; i < 4; ++i)
    CHECK(place.next("10.77.0.3,10.77.0.1", "isolation=auto") == "10.77.0.3");
}

TEST_CASE("simulation: spread=near takes the net that the source is on", "[simulation][spread]") {
  Place place;
  const std::string hosts = "10.88.0.1,10.77.0.1,10.77.0.3";
  for (int i = 0; i < 6; ++i) (void)place.next(hosts, "spread=near");
  CHECK(place.by_host() == Counts{{"10.77.0.1", 3}, {"10.77.0.3", 3}});
  // A distant address is better than none.
  place.world.set_path(*place.far, *place.near, false);
  place.world.set_path(*place.far, *place.devices[0], false);
  CHECK(place.next(hosts, "spread=near") == "10.88.0.1");
}

TEST_CASE("simulation: an address that does not answer delays one connect in ten seconds",
          "[simulation][spread]") {
  Place place;
  const std::string hosts = "10.77.0.1,10.77.0.3";
  place.world.set_path(*place.far, *place.near, false);
  const auto slow_ones = [&](int count) {
    int slow = 0;
    for (int i = 0; i < count; ++i) {
      const Nanoseconds begin = place.world.now();
      CHECK(place.next(hosts, "spread=least") == "10.77.0.3");
      slow += place.world.now() - begin > 100ms;
    }
    return slow;
  };
  CHECK(slow_ones(10) == 1);
  place.run_for(conn::AddressBook::kRest);
  CHECK(slow_ones(10) == 1);

  // Of many simultaneous clients one tests the address; the others do not wait for it.
  place.run_for(conn::AddressBook::kRest);
  const Nanoseconds begin = place.world.now();
  const std::size_t before = place.clients.size();
  for (int i = 0; i < 10; ++i) place.begin(hosts, "spread=least");
  const auto standing = [&] {
    int count = 0;
    for (std::size_t i = before; i < place.clients.size(); ++i)
      count += place.clients[i]->state() == conn::State::kConnected;
    return count;
  };
  RUN_UNTIL(place.loop, standing() == 9);
  CHECK(place.world.now() - begin < 100ms);
  RUN_UNTIL(place.loop, standing() == 10);
  CHECK(place.world.now() - begin > 100ms);

  // The address answers again: new clients connect to it until it has as many as the other.
  place.world.set_path(*place.far, *place.near, true);
  place.run_for(conn::AddressBook::kRest);
  for (int i = 0; i < 30; ++i) CHECK(place.next(hosts, "spread=least") == "10.77.0.1");
}

TEST_CASE("simulation: an address that somebody gave up waiting for rests, too",
          "[simulation][spread]") {
  Place place;
  const std::string hosts = "10.77.0.1,10.77.0.3";
  place.world.set_path(*place.far, *place.near, false);
  int given_up = 0;
  for (int i = 0; i < 10; ++i) {
    const conn::Connection& client = place.begin(hosts, "spread=least");
    place.run_for(200ms);
    if (client.state() == conn::State::kConnected) continue;
    ++given_up;
    place.clients.pop_back();
  }
  CHECK(given_up == 1);
  // A client that closes at once has learnt nothing about the address.
  place.run_for(conn::AddressBook::kRest);
  place.world.set_path(*place.far, *place.near, true);
  REQUIRE(place.next(hosts, "spread=least") == "10.77.0.1");
  place.begin(hosts, "spread=least");
  place.clients.pop_back();
  CHECK(place.next(hosts, "spread=least") == "10.77.0.1");
}

TEST_CASE("simulation: an address that fails at once rests as well", "[simulation][spread]") {
  Place place;
  const std::string hosts = "10.77.0.1,10.77.0.3";
  place.world.fail_call(2);  // rdma_resolve_addr of the first address chosen
  const std::string other = place.next(hosts, "spread=least");
  REQUIRE(place.world.last_failed() == "rdma_resolve_addr");
  REQUIRE(other != "");
  for (int i = 0; i < 3; ++i) CHECK(place.next(hosts, "spread=least") == other);
}

TEST_CASE("simulation: where every address fails the last failure is told, and nothing is counted",
          "[simulation][spread]") {
  Place place;
  place.listener.reset();
  place.listeners[0].reset();
  const std::string hosts = "10.77.0.1,10.77.0.3";
  for (int i = 0; i < 5; ++i) CHECK(place.next(hosts, "spread=least") == "");
  CHECK(place.clients.back()->error_code() == std::errc::connection_refused);
  // The failed connections still exist but do not count: the next ones are divided evenly.
  for (const char* host : {"10.77.0.1", "10.77.0.3"})
    place.listeners.push_back(place.type.listen(
        place.loop, conn::Endpoint::parse(std::string("rdma://") + host + ":" + place.port()),
        place.log.handler()));
  place.run_for(conn::AddressBook::kRest);
  for (int i = 0; i < 10; ++i) (void)place.next(hosts, "spread=least");
  CHECK(place.by_host() == Counts{{"", 5}, {"10.77.0.1", 5}, {"10.77.0.3", 5}});
}

TEST_CASE("simulation: a list of schemes hands spread on", "[simulation][spread]") {
  Place place;
  for (int i = 0; i < 6; ++i) {
    place.clients.push_back(place.registry.connect(
        place.loop,
        "rdma|tcp://10.77.0.1,10.77.0.3:" + place.port() + "?source=10.77.0.2&spread=least",
        [](conn::Connection&) {}));
    const conn::Connection& last = *place.clients.back();
    RUN_UNTIL(place.loop, last.state() != conn::State::kConnecting);
  }
  CHECK(place.by_host() == Counts{{"10.77.0.1", 3}, {"10.77.0.3", 3}});
}

TEST_CASE("simulation: a connect that waits spreads as well", "[simulation][spread]") {
  Place place;
  for (int i = 0; i < 6; ++i) {
    const conn::Endpoint to = conn::Endpoint::parse("rdma://10.77.0.1,10.77.0.3:" + place.port() +
                                                    "?source=10.77.0.2&spread=least");
    place.clients.push_back(place.type.create(place.loop));
    REQUIRE(place.clients.back()->connect_blocking(to, 5s));
  }
  CHECK(place.by_host() == Counts{{"10.77.0.1", 3}, {"10.77.0.3", 3}});
}
