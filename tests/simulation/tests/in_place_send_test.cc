// SPDX-License-Identifier: BSD-3-Clause
// In-place data over rdma: registered memory, and when it is released to the program.

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include "tests/simulation/costs.h"
#include "tests/simulation/in_place.h"
#include "tests/simulation/memory.h"

using namespace simulation;
using conn::rdma::registered_bytes;

TEST_CASE("simulation: registered memory counts as pinned while somebody sends from it",
          "[simulation][in-place]") {
  Place place;
  place.join();
  place.run_for(1s);
  const std::uint64_t before = registered_bytes();
  {
    Store store(place, 1 << 20);
    CHECK(registered_bytes() == before);  // registered at first use only
    Reader reader(*place.server, 5);
    REQUIRE(place.client->send(store.part(0, 100'000)) > 0);
    RUN_UNTIL(place.loop, store.releases == 1 && reader.size == 100'000);
    CHECK(registered_bytes() >= before + (1 << 20));
    const std::int64_t keys = place.far->costs.registrations;
    REQUIRE(place.client->send(store.part(100'000, 100'000)) > 0);
    RUN_UNTIL(place.loop, store.releases == 2);
    CHECK(place.far->costs.registrations <= keys + 2);  // perhaps a window's, not the store's
  }
  place.client.reset();
  place.log.clients.clear();
  place.run_for(100s);
  CHECK(registered_bytes() < before + (1 << 20));
}

TEST_CASE("simulation: memory that cannot be registered is copied", "[simulation][in-place]") {
  SECTION("memory-limit") {
    Place place("?in-place=yes&keepalive=0ms");
    place.join("keepalive=0ms&memory-limit=16m");
    Store store(place, 17 << 20);
    const std::uint64_t before = place.counter("bytes_copied_out");
    Reader reader(*place.server, 5);
    REQUIRE(place.client->send(store.part(0, 100'000)) > 0);
    RUN_UNTIL(place.loop, store.releases == 1 && reader.size == 100'000);
    CHECK(reader.intact);
    CHECK(place.counter("bytes_copied_out") - before == 100'000);
    CHECK(registered_bytes() < 17 << 20);
  }
  SECTION("the device refuses, and is asked again a second later") {
    Place place("?in-place=yes&keepalive=0ms");
    place.join();
    Store store(place, 1 << 20);
    Reader reader(*place.server, 5);
    // Allocates everything else that sending needs.
    REQUIRE(place.client->write(store.bytes.data(), 100'000) == 100'000);
    RUN_UNTIL(place.loop, reader.size == 100'000);
    place.run_for(100ms);
    const std::uint64_t before = place.counter("bytes_copied_out");
    const auto tries = [&] { return place.far->costs.slow["ibv_reg_mr"]; };
    const std::int64_t tried = tries();
    place.world.fail_call(1);
    REQUIRE(place.client->send(store.part(100'000, 20'000)) > 0);
    place.client->flush();
    REQUIRE(place.world.failed_calls() == 1);
    REQUIRE(place.world.last_failed() == "ibv_reg_mr");
    REQUIRE(place.client->send(store.part(120'000, 20'000)) > 0);
    RUN_UNTIL(place.loop, store.releases == 2 && reader.size == 140'000);
    CHECK(tries() == tried + 1);
    CHECK(place.counter("bytes_copied_out") - before == 40'000);
    place.run_for(1100ms);
    REQUIRE(place.client->send(store.part(140'000, 20'000)) > 0);
    RUN_UNTIL(place.loop, store.releases == 3 && reader.size == 160'000);
    CHECK(tries() == tried + 2);
    CHECK(place.counter("bytes_copied_out") - before == 40'000);
    CHECK(reader.intact);
  }
}

TEST_CASE("simulation: what was referred to is released once, however it ends",
          "[simulation][in-place]") {
  const std::string end = GENERATE("close", "the peer closes", "the peer is lost",
                                   "the device goes", "the loop ends", "nobody lingers");
  CAPTURE(end);
  Place place("?in-place=yes&keepalive=100ms" +
              std::string(end == "nobody lingers" ? "&linger=0ms" : ""));
  place.join(end == "nobody lingers" ? "linger=0ms&keepalive=100ms" : "keepalive=100ms");
  Store store(place, 3 << 20);
  // Some of it fits into the peer's windows; the rest waits.
  for (std::size_t i = 0; i < 12; ++i)
    REQUIRE(place.client->send(store.part(i * 200'000, 200'000)) > 0);
  if (end == "close") {
    Reader reader(*place.server, 5);
    place.client.reset();
    RUN_UNTIL(place.loop, reader.ended);
    CHECK(reader.size >= 12 * 200'000);
    CHECK(reader.intact);
    RUN_UNTIL(place.loop, store.releases == 12);
    CHECK(store.errors == 0);
    return;
  }
  place.run_for(20ms);
  CHECK(place.client->write("x", 1) == 1);  // send-buffer counts copied bytes only
  const int told = store.releases;
  CHECK(told < 12);
  CHECK(store.errors == 0);
  if (end == "the peer closes") place.log.clients.clear();
  if (end == "the peer is lost") place.world.set_path(*place.near, *place.far, false);
  if (end == "the device goes") place.world.remove_device(*place.far);
  if (end == "nobody lingers") place.client.reset();
  if (end == "the loop ends") {
    conn::ConnectionPtr keep = std::move(place.client);
    place.log.clients.clear();
    place.listener.reset();
    place.loop_holder.reset();
    CHECK(store.releases == 12);
    keep.reset();
  } else {
    RUN_UNTIL(place.loop, store.releases == 12);
    place.client.reset();
    place.run_for(10s);
  }
  CHECK(store.releases == 12);
  CHECK(store.errors > 0);
  CHECK(store.errors <= 12 - told);
}

TEST_CASE("simulation: no release says of bytes that they have arrived when they have not",
          "[simulation][in-place]") {
  const char* name = GENERATE("rxe", "mlx5", "bnxt_re", "irdma-e810", "hns");
  const std::string end = GENERATE("the path is cut", "the device goes", "the peer goes",
                                   "the peer takes its window back", "closed, and the path is cut");
  const Nanoseconds moment = GENERATE(Nanoseconds(0), 15us, 40us, 100us, 1ms);
  CAPTURE(name, end, moment.count());
  constexpr std::size_t kPieces = 12, kSize = 100'000;
  struct Piece {
    bool released = false;
    std::error_code why;
  };
  std::array<Piece, kPieces> pieces;
  Place place("?in-place=yes&keepalive=100ms", profile_named(name));
  place.join("keepalive=100ms");
  Store store(place, kPieces * kSize);
  Reader reader(*place.server, 5);
  for (std::size_t i = 0; i < kPieces; ++i) {
    conn::Outgoing outgoing = store.part(i * kSize, kSize);
    outgoing.context = &pieces[i];
    outgoing.release = [](void* context, std::error_code why) noexcept {
      *static_cast<Piece*>(context) = {true, why};
    };
    REQUIRE(place.client->send(outgoing) > 0);
  }
  place.client->flush();
  if (end.starts_with("closed")) place.client.reset();
  if (moment != Nanoseconds(0)) place.run_for(moment);
  if (end.ends_with("the path is cut")) place.world.set_path(*place.near, *place.far, false);
  if (end == "the device goes") place.world.remove_device(*place.far);
  if (end == "the peer goes") {
    reader.ended = true;
    place.server->set_read_handler(nullptr);
    place.log.clients.clear();
  }
  if (end == "the peer takes its window back")
    for (const auto& [number, qp] : place.world.queue_pairs)
      if (&qp->device_of() == place.near)
        while (!qp->windows.empty()) unbind(*qp->windows.front());
  RUN_UNTIL(place.loop, std::all_of(pieces.begin(), pieces.end(),
                                    [](const Piece& each) { return each.released; }));
  place.run_for(10ms);
  std::size_t arrived = 0;
  bool failed = false;
  for (const Piece& each : pieces) {
    failed = failed || each.why;
    if (!each.why) arrived += kSize;
    CHECK_FALSE((failed && !each.why));  // released in order
  }
  if (end != "the peer goes") CHECK(arrived <= reader.size);
  place.client.reset();
  place.run_for(10s);
}

TEST_CASE("simulation: memory outlives devices and loops, and is used again",
          "[simulation][in-place]") {
  Place place;
  place.join();
  Store store(place, 1 << 20);
  {
    Reader reader(*place.server, 5);
    REQUIRE(place.client->send(store.part(0, 100'000)) > 0);
    RUN_UNTIL(place.loop, store.releases == 1);
  }
  SECTION("a device comes back") {
    place.server->set_read_handler(nullptr);
    place.client.reset();
    place.log.clients.clear();
    place.run_for(10s);
    place.type.cleanup(place.loop);
    CHECK(place.far->handles.empty());
    CHECK(registered_bytes() < 1 << 20);
    place.join();
    Reader reader(*place.server, 5);
    const std::uint64_t before = place.counter("bytes_copied_out");
    REQUIRE(place.client->send(store.part(0, 100'000)) > 0);
    RUN_UNTIL(place.loop, store.releases == 2 && reader.size == 100'000);
    CHECK(place.counter("bytes_copied_out") == before);
  }
  SECTION("the loop ends") {
    place.server->set_read_handler(nullptr);
    place.client.reset();
    place.log.clients.clear();
    place.listener.reset();
    place.loop_holder.reset();
    CHECK(registered_bytes() == 0);
    store.memory.reset();
  }
}
