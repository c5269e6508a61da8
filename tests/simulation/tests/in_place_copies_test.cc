// SPDX-License-Identifier: BSD-3-Clause
// In-place data over rdma: which bytes are copied, and that no memory is allocated.

#include <cerrno>
#include <string>

#include "tests/simulation/costs.h"
#include "tests/simulation/in_place.h"
#include "tests/simulation/memory.h"

using namespace simulation;
using conn::Connection;
using conn::Outgoing;
using conn::View;

TEST_CASE("simulation: what is peeked is copied once, and not at all with in-place=yes",
          "[simulation][in-place]") {
  const bool in_place = GENERATE(false, true);
  Place place(in_place ? "?in-place=yes" : "");
  place.join();
  REQUIRE(place.type.capabilities().in_place);
  const std::uint64_t before = place.counter("bytes_copied_in");
  constexpr std::size_t kSize = 3 << 20;
  Reader reader(*place.server, 9);
  testing::Sender sender(*place.client, 9, kSize);
  RUN_UNTIL(place.loop, reader.size == kSize);
  CHECK(reader.intact);
  CHECK(reader.stable == !in_place);
  CHECK(place.server->bytes_read() >= kSize);
  CHECK(place.counter("bytes_copied_in") - before == (in_place ? 0 : kSize));
}

TEST_CASE("simulation: read() copies once, whatever in-place says", "[simulation][in-place]") {
  Place place;
  place.join();
  const std::uint64_t in = place.counter("bytes_copied_in"),
                      out = place.counter("bytes_copied_out");
  testing::Receiver receiver(*place.server, 4);
  testing::Sender sender(*place.client, 4, 1 << 20);
  RUN_UNTIL(place.loop, receiver.received == 1 << 20);
  CHECK(receiver.intact);
  CHECK(place.counter("bytes_copied_in") - in == 1 << 20);
  CHECK(place.counter("bytes_copied_out") - out == 1 << 20);
}

TEST_CASE("simulation: what is sent from registered memory is not copied",
          "[simulation][in-place]") {
  Place place;
  place.join();
  Store store(place, 1 << 20);
  const std::uint64_t before = place.counter("bytes_copied_out");
  Reader reader(*place.server, 5);
  std::size_t sent = 0;
  for (const std::size_t size : {64 * kKibi, std::size_t{1024}, std::size_t{5000}, 300 * kKibi}) {
    REQUIRE(place.client->send(store.part(sent, size)) == static_cast<ssize_t>(size));
    sent += size;
  }
  CHECK(store.releases == 0);  // never within send()
  RUN_UNTIL(place.loop, reader.size == sent && store.releases == 4);
  CHECK(reader.intact);
  CHECK(store.errors == 0);
  CHECK(place.counter("bytes_copied_out") == before);
  SECTION("short parts are copied, and order is kept") {
    REQUIRE(place.client->send(store.part(sent, 100)) == 100);
    REQUIRE(place.client->send(store.part(sent + 100, 70 * kKibi)) > 0);
    REQUIRE(place.client->write(store.bytes.data() + sent + 100 + 70 * kKibi, 50) == 50);
    REQUIRE(place.client->send(store.part(sent + 150 + 70 * kKibi, 2000)) > 0);
    RUN_UNTIL(place.loop, reader.size == sent + 2150 + 70 * kKibi && store.releases == 7);
    CHECK(reader.intact);
    CHECK(place.counter("bytes_copied_out") - before == 150);
  }
  SECTION("what it does not hold is copied") {
    std::string other = store.bytes.substr(sent, 9000);
    Outgoing outgoing = store.part(0, 1);
    outgoing.bytes = std::as_bytes(std::span<const char>(other));
    REQUIRE(place.client->send(outgoing) == 9000);
    RUN_UNTIL(place.loop, reader.size == sent + 9000 && store.releases == 5);
    CHECK(reader.intact);
    CHECK(place.counter("bytes_copied_out") - before == 9000);
  }
  SECTION("without memory, too") {
    Outgoing outgoing = store.part(sent, 9000);
    outgoing.memory = nullptr;
    REQUIRE(place.client->send(outgoing) == 9000);
    RUN_UNTIL(place.loop, reader.size == sent + 9000 && store.releases == 5);
    CHECK(reader.intact);
    CHECK(place.counter("bytes_copied_out") - before == 9000);
  }
}

TEST_CASE("simulation: what is reserved and committed is not copied, and leaves in few requests",
          "[simulation][in-place]") {
  Place place("?in-place=yes&keepalive=0ms&window=1m");
  place.join();
  Store store(place, 64 * kKibi);
  const std::uint64_t before = place.counter("bytes_copied_out");
  place.run_for(10ms);
  const Costs costs = place.world.costs(*place.far);
  // A typical reply of a server: a header, a value, a trailer.
  put(*place.client, "$65536\r\n");
  REQUIRE(place.client->send(store.part(0, 64 * kKibi)) > 0);
  put(*place.client, "\r\n");
  peek_until(place, *place.server, 64 * kKibi + 10);
  const View view = place.server->peek();
  CHECK(text_of(view) == "$65536\r\n" + store.bytes + "\r\n");
  RUN_UNTIL(place.loop, store.releases == 1);
  CHECK(place.counter("bytes_copied_out") == before);
  const std::int64_t requests = (place.world.costs(*place.far) - costs).requests;
  CHECK(requests == (chosen_profile().max_sge > 2 ? 1 : 3));
}

TEST_CASE("simulation: many bytes sent in place leave in long batches, whatever send-buffer is",
          "[simulation][in-place]") {
  Place place("?in-place=yes&keepalive=0ms&window=1m&send-buffer=64k");
  place.join();
  Store store(place, 1 << 20);
  place.run_for(10ms);
  const Costs costs = place.world.costs(*place.far);
  Reader reader(*place.server, 5);
  for (std::size_t at = 0; at < store.bytes.size(); at += 64 * kKibi)
    REQUIRE(place.client->send(store.part(at, 64 * kKibi)) > 0);
  RUN_UNTIL(place.loop, reader.size == store.bytes.size() && store.releases == 16);
  CHECK(reader.intact);
  // Batches of 256 KiB while enough bytes wait.
  const std::int64_t doorbells = (place.world.costs(*place.far) - costs).doorbells;
  CHECK(doorbells == 5);
}

TEST_CASE("simulation: a device that takes fewer pieces than it claims is believed then",
          "[simulation][in-place]") {
  Profile profile = profile_named("mlx5");
  profile.most_sge = 1;
  Place place("?in-place=yes&keepalive=0ms&window=1m", profile);
  place.join();
  CHECK(place.far->costs.slow["ibv_create_qp"] > 2);
  Store store(place, 10'000);
  const Costs costs = place.world.costs(*place.far);
  put(*place.client, "head");
  REQUIRE(place.client->send(store.part(0, 10'000)) > 0);
  peek_until(place, *place.server, 10'004);
  CHECK((place.world.costs(*place.far) - costs).requests == 2);
  place.client.reset();
  const std::int64_t tried = place.far->costs.slow["ibv_create_qp"];
  place.join();
  CHECK(place.far->costs.slow["ibv_create_qp"] == tried + 1);  // the limit is not probed again
}

TEST_CASE("simulation: requests in place allocate nothing once they have begun",
          "[simulation][in-place]") {
  Place place("?in-place=yes&keepalive=0ms");
  place.join();
  Store store(place, 32 * kKibi);
  std::size_t got = 0;
  bool wrong = false;
  place.client->set_read_handler([&](Connection& here) {
    for (View view; (view = here.peek()).size != 0; here.consume(view.size)) got += view.size;
  });
  place.server->set_read_handler([&](Connection& here) {
    for (View view; (view = here.peek(6)).size >= 6; here.consume(6)) {
      put(here, "$32768\r\n");
      wrong = wrong || here.send(store.part(0, 32 * kKibi)) < 0;
    }
  });
  const auto requests = [&](int count) {
    for (int i = 0; i < count; ++i) {
      got = 0;
      put(*place.client, "GET x\n");
      while (got < 32 * kKibi + 8) (void)place.loop.process_events(ae::kFullIteration);
    }
  };
  // Each send in flight has an object of ReferencePool, which keeps them for later sends. It grows
  // once more when more sends than before are in flight at once, on rxe after 200 to 500 requests.
  requests(2000);
  const std::uint64_t before = allocations();
  requests(200);
  CHECK(allocations() == before);
  CHECK_FALSE(wrong);
}
