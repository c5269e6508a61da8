// SPDX-License-Identifier: BSD-3-Clause
// In-place data over rdma: what peek() shows, what a peer can do to it, and that peeked bytes
// remain until they are consumed.

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "tests/simulation/in_place.h"
#include "tests/support/raw_peer.h"

using namespace simulation;
using conn::Connection;
using conn::View;
using testing::Pattern;

TEST_CASE("simulation: a peer that rewrites what it sent changes it with in-place=yes alone",
          "[simulation][in-place][hostile]") {
  const bool in_place = GENERATE(false, true);
  Room room({}, in_place ? "?in-place=yes" : "");
  testing::RawNet net(room.loop);
  testing::RawOptions options;
  options.source = "10.77.0.2";
  auto peer = net.connect(room.address, options);
  RUN_UNTIL(room.loop, !peer->offers.empty() && !room.log.clients.empty());
  Connection& server = *room.log.clients.front();
  server.set_read_handler(nullptr);
  const testing::RawPeer::Offer window = peer->offer();
  peer->stream("user=alice");
  View view;
  RUN_UNTIL(room.loop, (view = server.peek()).size == 10);
  REQUIRE(view.stable == !in_place);
  peer->write("user=admin", window.address, window.key);
  room.run_for(100ms);
  CHECK(text_of(view) == (in_place ? "user=admin" : "user=alice"));
  server.consume(10);
  peer.reset();
  RUN_UNTIL(room.loop, server.peek().size == 0 && errno != EAGAIN);
}

TEST_CASE("simulation: the read handler waits for as many bytes as peek() wanted together",
          "[simulation][in-place]") {
  Place place;
  place.join();
  int calls = 0;
  std::string got;
  bool last = false;
  place.server->set_read_handler([&](Connection& here) {
    ++calls;
    const View view = here.peek(1000);
    last = view.last;
    if (view.size >= 1000 || last) {
      REQUIRE((view.pieces[0].iov_len >= 1000 || last));
      got += text_of(view);
      here.consume(view.size);
    }
    if (last) here.set_read_handler(nullptr);
  });
  const std::string sent = pattern_of(1, 1700);
  const auto send = [&](std::size_t from, std::size_t size) {
    REQUIRE(place.client->write(sent.data() + from, size) == static_cast<ssize_t>(size));
    place.run_for(10ms);
  };
  send(0, 300);
  CHECK(calls == 1);
  send(300, 300);
  send(600, 399);
  CHECK(calls == 1);
  CHECK(got.empty());
  send(999, 1);
  CHECK(calls == 2);
  CHECK(got == sent.substr(0, 1000));
  send(1000, 700);
  CHECK(calls == 3);
  place.client.reset();
  RUN_UNTIL(place.loop, last);
  CHECK(got == sent);
  CHECK(place.server->peek().size == 0);
  CHECK(errno == 0);
}

TEST_CASE("simulation: a read() after a peek() for more is told of what is left",
          "[simulation][in-place]") {
  Place place;
  place.join();
  testing::send(place.loop, *place.client, "abcdef");
  REQUIRE(peek_until(place, *place.server, 6, 100).size == 6);
  CHECK(testing::read_some(*place.server, 2) == "ab");
  // The read() cancels the wait for 100 bytes.
  CHECK(testing::receive(place.loop, *place.server, 4) == "cdef");
}

TEST_CASE("simulation: more bytes together than lie together are copied together",
          "[simulation][in-place]") {
  // Either the windows are smaller than the bytes wanted, or these span two windows.
  const std::string windows = GENERATE("&window=4096&max-window=4096", "&window=20000", "");
  CAPTURE(windows);
  Place place("?in-place=yes" + windows);
  place.join("in-place=yes" + windows);
  constexpr std::size_t kSize = 2 << 20;
  const Pattern pattern(2);
  std::size_t size = 0;
  bool intact = true;
  std::size_t wanted = 60'000;
  place.server->set_read_handler([&](Connection& here) {
    for (;;) {
      const View view = here.peek(std::min(wanted, kSize - size));
      if (view.size < std::min(wanted, kSize - size) || view.size == 0) return;
      const std::size_t part = std::min(wanted, kSize - size);
      intact = intact && view.pieces[0].iov_len >= part &&
               pattern.matches(size, view.first().substr(0, std::min<std::size_t>(part, 7000)));
      here.consume(part);
      size += part;
      wanted = 1 + wanted * 7 % 65'536;
    }
  });
  testing::Sender sender(*place.client, 2, kSize);
  RUN_UNTIL(place.loop, size == kSize);
  CHECK(intact);
}

TEST_CASE("simulation: what is peeked in one iteration keeps to read-budget",
          "[simulation][in-place]") {
  Place place("?in-place=yes&read-budget=10000&window=1m&keepalive=0ms");
  place.join();
  testing::send(place.loop, *place.client, std::string(100'000, 'b'));
  place.run_for(10ms);
  std::vector<std::size_t> turns;
  place.server->set_read_handler([&](Connection& here) {
    turns.push_back(0);
    for (View view; (view = here.peek()).size != 0; here.consume(view.size))
      turns.back() += view.size;
  });
  RUN_UNTIL(place.loop, place.server->bytes_read() >= 100'000);
  REQUIRE(turns.size() >= 10);
  for (const std::size_t each : turns) CHECK(each <= 10'000);
}

TEST_CASE("simulation: bytes that are looked at outlive the connection and its device",
          "[simulation][in-place]") {
  const std::string end = GENERATE("the peer closes", "the device goes", "the peer is lost");
  const std::string isolation =
      GENERATE(std::string(chosen_profile().bound_keys() ? "&isolation=window" : ""),
               std::string("&isolation=connection"), std::string("&isolation=none"));
  CAPTURE(end, isolation);
  Place place("?in-place=yes&keepalive=100ms" + isolation);
  place.join();
  const conn::ConnectionPtr other = place.connected();  // uses the shared resources, too
  const std::string sent = pattern_of(3, 100'000);
  testing::send(place.loop, *place.client, sent);
  place.run_for(50ms);
  const View view = place.server->peek();
  REQUIRE(view.size >= 65'536);
  if (end == "the peer closes")
    place.client.reset();
  else if (end == "the device goes")
    place.world.remove_device(*place.near);
  else
    place.world.set_path(*place.near, *place.far, false);
  place.run_for(20s);
  // New connections must not receive into this memory.
  if (end == "the peer closes") {
    const auto next = place.connected();
    place.echoes(*next, 200'000);
  }
  if (end == "the device goes") CHECK(place.near->handles.empty());
  CHECK(text_of(view) == sent.substr(0, view.size));
  std::string got;
  for (View rest; (rest = place.server->peek()).size != 0; place.server->consume(rest.size))
    got += text_of(rest);
  CHECK(got.size() >= 65'536);
  CHECK(got == sent.substr(0, got.size()));
}

TEST_CASE("simulation: bytes that are looked at go with the connection, or with the loop",
          "[simulation][in-place]") {
  Place place;
  place.join();
  testing::send(place.loop, *place.client, std::string(50'000, 'v'));
  place.run_for(10ms);
  REQUIRE(place.server->peek().size == 50'000);
  place.client.reset();
  place.run_for(5s);
  SECTION("closed") { place.log.clients.clear(); }
  SECTION("the loop ends first") {
    const conn::ConnectionPtr keep = std::move(place.log.clients.back());
    place.log.clients.clear();
    place.listener.reset();
    place.loop_holder.reset();
    CHECK(keep->peek().size == 0);
  }
}
