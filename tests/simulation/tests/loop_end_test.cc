// SPDX-License-Identifier: BSD-3-Clause
// Loops that end while their connections are active.

#include <array>
#include <cerrno>
#include <functional>
#include <memory>
#include <string>

#include "conn/core/connection_core.h"
#include "conn/rdma/carrier.h"
#include "conn/rdma/device/orphans.h"
#include "tests/simulation/room.h"

using namespace simulation;
using conn::rdma::LinkedCarrier;
using conn::rdma::RequestsInFlight;
using conn::rdma::Sender;

namespace {

// The request counters of a connection wrap around after 2^32 requests, more than a test can post.
struct Requests {
  using Type = RequestsInFlight Sender::*;
  friend Type member(Requests);
};
struct Posted {
  using Type = std::uint32_t RequestsInFlight::*;
  friend Type member(Posted);
};
struct Done {
  using Type = std::uint32_t RequestsInFlight::*;
  friend Type member(Done);
};
struct Signaled {
  using Type = std::uint32_t RequestsInFlight::*;
  friend Type member(Signaled);
};
struct LinkOf {
  using Type = conn::rdma::Link LinkedCarrier::*;
  friend Type member(LinkOf);
};
template <class Name, typename Name::Type kMember>
struct Reach {
  friend typename Name::Type member(Name) { return kMember; }
};
template struct Reach<Requests, &Sender::requests_>;
template struct Reach<Posted, &RequestsInFlight::posted_>;
template struct Reach<Done, &RequestsInFlight::done_>;
template struct Reach<Signaled, &RequestsInFlight::last_signaled_>;
template struct Reach<LinkOf, &LinkedCarrier::link_>;

Sender& sender_of(conn::Connection& connection) {
  auto& carrier = dynamic_cast<LinkedCarrier&>(conn::ConnectionCore::of(connection).carrier());
  return (carrier.*member(LinkOf{})).sender;
}

// As if `more` further requests had been posted and completed.
void post_on(conn::Connection& connection, std::uint32_t more) {
  RequestsInFlight& here = sender_of(connection).*member(Requests{});
  REQUIRE(here.*member(Posted{}) == here.*member(Done{}));
  here.*member(Posted{}) += more;
  here.*member(Done{}) += more;
  here.*member(Signaled{}) += more;
}
std::uint32_t posted(conn::Connection& connection) {
  return sender_of(connection).requests().posted();
}

// Iterates both loops in turn, while time passes.
void run_both(Room& room, ae::EventLoop& other, const std::function<bool()>& done) {
  const Nanoseconds limit = room.world.now() + 10s;
  while (!done()) {
    REQUIRE(room.world.now() < limit);
    for (ae::EventLoop* loop : std::array<ae::EventLoop*, 2>{&room.loop, &other})
      (void)loop->process_events(ae::kAllEvents | ae::kDontWait);
    room.world.advance(room.world.now() + 10us);
  }
}

// Read handler: reads what is available until the end of stream.
void collect(conn::Connection& here, std::string& got) {
  std::array<char, 4096> bytes;
  for (;;) {
    const ssize_t n = here.read(bytes.data(), bytes.size());
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) return here.set_read_handler(nullptr);
    got.append(bytes.data(), static_cast<std::size_t>(n));
  }
}

conn::ConnectionPtr connect(Room& room, ae::EventLoop& loop) {
  conn::ConnectionPtr client = room.type.create(loop);
  client->connect(room.address, {});
  return client;
}

}  // namespace

TEST_CASE("simulation: a loop that ends waits until a byte stream has delivered",
          "[simulation][close]") {
  const Profile& iwarp = profile_named("iwarp");
  Room room({}, {}, iwarp, iwarp);
  auto loop = testing::make_loop();
  const auto client = connect(room, *loop);
  run_both(room, *loop, [&] {
    return client->state() == conn::State::kConnected && room.log.clients.size() == 1;
  });
  std::string got;
  room.log.clients.front()->set_read_handler([&](conn::Connection& here) { collect(here, got); });
  // Bytes are sent once the peer has offered a window. On iWARP it may not do so before it has
  // heard from this end; and the peer's loop does not run while this loop ends.
  bool writable = false;
  client->set_write_handler([&](conn::Connection& here) {
    writable = true;
    here.set_write_handler(nullptr);
  });
  run_both(room, *loop, [&] { return writable; });
  room.world.config.weather.least_delay = room.world.config.weather.most_delay = 5ms;
  const std::string bytes(10000, 'l');
  REQUIRE(client->write(bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  loop.reset();
  room.run_for(1s);
  CHECK(got == bytes);
}

// The straight path posts a few bytes without requesting a completion; the end of the loop must
// request one, which shows that they are delivered.
TEST_CASE("simulation: a loop that ends knows at once that a few bytes are delivered",
          "[simulation][close][straight]") {
  const Profile& profile = profile_named("mlx5");
  Room room({}, "?keepalive=0ms", profile, profile);
  auto loop = testing::make_loop();
  const auto client = connect(room, *loop);
  std::string got;
  run_both(room, *loop, [&] {
    return client->state() == conn::State::kConnected && room.log.clients.size() == 1;
  });
  room.log.clients.front()->set_read_handler([&](conn::Connection& here) { collect(here, got); });
  for (int i = 0; i < 20; ++i) {  // reaches the middle of a window, and no key is to be changed
    const std::string before(10, 'b');
    const std::size_t expected = got.size() + before.size();
    REQUIRE(client->write(before.data(), before.size()) == 10);
    run_both(room, *loop, [&] { return got.size() == expected; });
    run_both(room, *loop, [end = room.world.now() + 1ms, &room] { return room.world.now() > end; });
  }
  REQUIRE(client->write("few", 3) == 3);
  const Nanoseconds begin = room.world.now();
  loop.reset();
  CHECK(room.world.now() - begin < 1ms);
  room.run_for(1s);
  CHECK(got.ends_with("few"));
}

TEST_CASE("simulation: a loop whose connections wrote nothing ends at once",
          "[simulation][close]") {
  const Profile& profile = profile_named(GENERATE("iwarp", "mlx5"));
  Room room({}, {}, profile, profile);
  auto loop = testing::make_loop();
  const auto client = connect(room, *loop);
  run_both(room, *loop, [&] {
    return client->state() == conn::State::kConnected && room.log.clients.size() == 1;
  });
  room.world.config.weather.least_cm_delay = room.world.config.weather.most_cm_delay = 50ms;
  const Nanoseconds begin = room.world.now();
  loop.reset();
  CHECK(room.world.now() - begin < 1ms);
  room.run_for(1s);
  CHECK(room.log.endings.size() == 1);
}

// Goal: the requests in progress are determined correctly however many requests the connection has
// posted. Method: set the counters as after months: half-way round, where old requests would seem
// to be ahead, and so that the last request that holds bytes is number 0.
TEST_CASE("simulation: a loop ends as soon however many requests its connections have posted",
          "[simulation][close]") {
  const Profile& profile = profile_named(GENERATE("iwarp", "mlx5"));
  const bool writes_at_last = GENERATE(false, true);
  CAPTURE(profile.name, writes_at_last);
  Room room({}, {}, profile, profile);
  auto loop = testing::make_loop();
  conn::Endpoint to = room.address;
  to.options.set("keepalive", "100ms");
  const auto client = room.type.create(*loop);
  client->connect(to, {});
  bool writable = false;
  client->set_write_handler([&](conn::Connection& here) {
    writable = true;
    here.set_write_handler(nullptr);
  });
  run_both(room, *loop, [&] { return writable && room.log.clients.size() == 1; });
  std::string got;
  room.log.clients.front()->set_read_handler([&](conn::Connection& here) { collect(here, got); });
  const std::string bytes(3000, 'l');
  const auto write = [&] {
    REQUIRE(client->write(bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  };
  if (!writes_at_last) write();
  // A keepalive requests a completion of everything posted before it.
  for (int i = 0; i < 300; ++i) {
    for (ae::EventLoop* each : std::array<ae::EventLoop*, 2>{&room.loop, loop.get()})
      (void)each->process_events(ae::kAllEvents | ae::kDontWait);
    (void)room.world.advance(room.world.now() + 1ms);
  }
  if (writes_at_last) {
    post_on(*client, 0u - posted(*client) - 1u);
    room.world.config.weather.least_delay = room.world.config.weather.most_delay = 5ms;
    write();
  } else {
    post_on(*client, (1u << 31) + (1u << 16));
  }
  const Nanoseconds begin = room.world.now();
  loop.reset();
  CHECK(room.world.now() - begin < 50ms);  // end-linger is 100 ms
  room.run_for(1s);
  CHECK(got == bytes);
}

TEST_CASE("simulation: a loop that ends says no goodbye for a connection that is being made",
          "[simulation][close]") {
  Config config;
  config.weather.least_cm_delay = config.weather.most_cm_delay = 10ms;
  Room room(config);
  auto loop = testing::make_loop();
  const auto client = connect(room, *loop);
  run_both(room, *loop, [&] { return room.far->costs.slow["rdma_connect"] == 1; });
  loop.reset();
  CHECK(room.far->costs.slow["rdma_disconnect"] == 0);
  CHECK(client->state() == conn::State::kError);
}

// Goal: a loop ends within end-linger, whatever is being made or ended on it. Method: each phase of
// a connect, and of an accepted connection, at the moment when the peer falls silent, on each kind
// of device; and a port without a link, for which the kernel waits.
TEST_CASE("simulation: a loop ends within end-linger while its peers are silent",
          "[simulation][close]") {
  const bool port_is_down = GENERATE(false, true);
  const std::string step = GENERATE("rdma_resolve_addr", "rdma_resolve_route", "rdma_connect",
                                    "rdma_accept", "connected");
  CAPTURE(port_is_down, step);
  Room room;
  auto loop = testing::make_loop();
  auto serving = testing::make_loop();
  conn::ListenerPtr listener =
      room.type.listen(*serving, conn::Endpoint::parse("rdma://10.77.0.1:0"), room.log.handler());
  conn::Endpoint to = listener->endpoints().front();
  to.options.set("source", "10.77.0.2");
  conn::ConnectionPtr client = room.type.create(*loop);
  client->connect(to, {});
  const auto there = [&] {
    if (step == "connected") return client->state() == conn::State::kConnected;
    return room.far->costs.slow[step] + room.near->costs.slow[step] > 0;
  };
  for (int i = 0; !there() && i < 100'000; ++i) {
    (void)loop->process_events(ae::kAllEvents | ae::kDontWait);
    (void)serving->process_events(ae::kAllEvents | ae::kDontWait);
    (void)room.world.advance(room.world.now() + 100us);
  }
  REQUIRE(there());
  room.world.set_path(*room.near, *room.far, false);
  if (port_is_down) {
    room.world.set_link(*room.near, false);
    room.world.set_link(*room.far, false);
  }
  Nanoseconds begin = room.world.now();
  loop.reset();
  CHECK(room.world.now() - begin < 110ms);
  begin = room.world.now();
  listener.reset();
  room.log.clients.clear();
  serving.reset();
  CHECK(room.world.now() - begin < 110ms);
  client.reset();
  room.world.set_path(*room.near, *room.far, true);
  room.world.let_orphans_go();
  CHECK_FALSE(conn::rdma::any_orphans());
}

TEST_CASE("simulation: what a loop left to the process goes with a later look of another loop",
          "[simulation][close]") {
  const Profile& iwarp = profile_named("iwarp");
  Room room({}, {}, iwarp, iwarp);
  auto loop = testing::make_loop();
  const auto client = connect(room, *loop);
  run_both(room, *loop, [&] { return room.far->costs.slow["rdma_connect"] == 1; });
  room.world.set_path(*room.near, *room.far, false);
  loop.reset();
  CHECK(conn::rdma::any_orphans());
  room.world.set_path(*room.near, *room.far, true);
  const auto other = room.connected();
  room.run_for(110s);
  CHECK_FALSE(conn::rdma::any_orphans());
}

TEST_CASE("simulation: iWARP's end of a stream is told also where rdma_cm is slow to say it",
          "[simulation][close]") {
  const Profile& iwarp = profile_named("iwarp");
  Room room({}, {}, iwarp, iwarp);
  const auto client = room.connected();
  room.world.config.weather.least_cm_delay = room.world.config.weather.most_cm_delay = 10s;
  for (auto& [number, qp] : room.world.queue_pairs)
    if (&qp->device_of() == room.far) fail(*qp);
  CHECK(room.until_failed(*client) < 600ms);
  CHECK(client->error_code() == std::errc::connection_reset);
}

TEST_CASE("simulation: a post that the driver refuses ends that connection, in words",
          "[simulation][close]") {
  const Profile& iwarp = profile_named("iwarp");
  Room room({}, {}, iwarp, iwarp);
  const auto client = room.connected();
  const auto other = room.connected();
  // The queue pair fails between the last poll and the post.
  room.loop.add_time_event(1ms, [&] {
    for (auto& [number, qp] : room.world.queue_pairs)
      if (&qp->device_of() == room.far) {
        fail(*qp);
        break;
      }
    (void)client->write("x", 1);
    return ae::kNoMore;
  });
  CHECK(room.until_failed(*client) < 100ms);
  // Over iWARP rdma_cm tells why.
  CHECK_THAT(client->last_error(), testing::Contains("cut before the peer ended its stream"));
  room.echoes(*other);
}
