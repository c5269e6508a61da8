// SPDX-License-Identifier: BSD-3-Clause
// Statistics of rdma that tell why a connection stops sending, and what its device is given:
// stalls by cause, inline requests, registrations by cause.

#include <array>
#include <map>
#include <string>

#include "tests/simulation/costs.h"
#include "tests/simulation/in_place.h"

using namespace simulation;

namespace {

struct Stalls {
  explicit Stalls(Place& place)
      : window(place.counter("stalls_window")),
        receives(place.counter("stalls_receives")),
        send_queue(place.counter("stalls_send_queue")) {}
  std::uint64_t window, receives, send_queue;
};

/// Writes single bytes, each as a message of its own, without letting the loop run.
void write_messages(conn::Connection& connection, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    REQUIRE(connection.write("x", 1) == 1);
    connection.flush();
  }
}

void count_reads(conn::Connection& connection, std::size_t& read) {
  connection.set_read_handler([&read](conn::Connection& here) {
    std::array<char, 4096> bytes;
    for (ssize_t n = 0; (n = here.read(bytes.data(), bytes.size())) > 0;)
      read += static_cast<std::size_t>(n);
  });
}

std::int64_t registered(Place& place) {
  std::int64_t calls = 0;
  for (Device* device : {place.near, place.far}) {
    const auto found = device->costs.slow.find("ibv_reg_mr");
    if (found != device->costs.slow.end()) calls += found->second;
  }
  return calls;
}

}  // namespace

TEST_CASE("simulation: a peer that does not read is one stall for a window",
          "[simulation][counters]") {
  const std::string options = "keepalive=0ms&window=4k&max-window=4k&max-windows=2";
  Place place("?" + options);
  place.join(options);
  const Stalls before(place);
  const std::string bytes(1024, 'w');
  std::size_t written = 1000;  // by join()
  // Writes up to the end of a window at most, so that a window that is full leaves nothing behind
  // while the peer announces another one.
  const auto write = [&] {
    const ssize_t n = place.client->write(bytes.data(), 1024 - written % 1024);
    if (n > 0) written += static_cast<std::size_t>(n);
    place.run_for(10ms);
    return n > 0;
  };
  while (write()) {
  }
  for (int i = 0; i < 20; ++i) {
    REQUIRE_FALSE(write());
    place.client->flush();
    place.run_for(100ms);
  }
  const Stalls stalled(place);
  CHECK(stalled.window - before.window == 1);
  CHECK(stalled.receives == before.receives);
  CHECK(stalled.send_queue == before.send_queue);

  std::size_t read = 1000;
  count_reads(*place.server, read);
  RUN_UNTIL(place.loop, read == written);
  place.run_for(1s);
  place.server->set_read_handler(nullptr);
  const Stalls again(place);
  while (write()) {
  }
  CHECK(Stalls(place).window - again.window == 1);
}

TEST_CASE("simulation: a peer whose receives are used up is one stall for receives",
          "[simulation][counters]") {
  Place place("?keepalive=0ms&receive-queue=16&shared-receive-queue=64");
  place.join("keepalive=0ms&send-queue=128");
  const Stalls before(place);
  std::size_t read = 0;
  count_reads(*place.server, read);
  write_messages(*place.client, 60);
  CHECK(Stalls(place).receives - before.receives == 1);
  RUN_UNTIL(place.loop, read == 60);
  const Stalls after(place);
  CHECK(after.receives - before.receives == 1);
  CHECK(after.window == before.window);
  CHECK(after.send_queue == before.send_queue);
}

TEST_CASE("simulation: a full send queue is one stall for it", "[simulation][counters]") {
  Place place("?keepalive=0ms");
  place.join("keepalive=0ms&send-queue=8");
  const Stalls before(place);
  std::size_t read = 0;
  count_reads(*place.server, read);
  write_messages(*place.client, 60);
  CHECK(Stalls(place).send_queue - before.send_queue == 1);
  RUN_UNTIL(place.loop, read == 60);
  const Stalls after(place);
  CHECK(after.send_queue - before.send_queue == 1);
  CHECK(after.window == before.window);
  CHECK(after.receives == before.receives);
}

// Devices that confirm late make a short send queue wait, which is a stall.
TEST_CASE("simulation: messages that are answered in turn are no stall", "[simulation][counters]") {
  Place place("?keepalive=0ms&send-queue=256");
  const auto client = place.connected("keepalive=0ms&send-queue=256");
  for (int i = 0; i < 300; ++i) place.echoes(*client, 64);
  const Stalls all(place);
  CHECK(all.window == 0);
  CHECK(all.receives == 0);
  CHECK(all.send_queue == 0);
}

TEST_CASE("simulation: inline requests are those whose bytes the device does not fetch",
          "[simulation][counters]") {
  const bool inlined = GENERATE(true, false);
  const std::string options = inlined ? "keepalive=0ms" : "keepalive=0ms&inline=0";
  CAPTURE(inlined);
  Place place("?" + options);
  const auto client = place.connected(options);
  const auto fetched = [&] { return place.near->costs.not_inline + place.far->costs.not_inline; };
  const auto requests = [&] { return place.near->costs.requests + place.far->costs.requests; };
  constexpr int kEchoes = 50;
  for (const std::size_t size : {std::size_t{24}, std::size_t{4000}}) {
    CAPTURE(size);
    const std::int64_t sent = requests(), not_inline = fetched();
    const std::uint64_t work = place.counter("work_requests"), in = place.counter("inline_sends");
    for (int i = 0; i < kEchoes; ++i) place.echoes(*client, size);
    const auto inline_sends = static_cast<std::int64_t>(place.counter("inline_sends") - in);
    CHECK(static_cast<std::int64_t>(place.counter("work_requests") - work) == requests() - sent);
    CHECK(inline_sends <= requests() - sent - (fetched() - not_inline));
    if (inlined && size == 24) CHECK(inline_sends >= 2 * kEchoes);
    if (size == 4000) CHECK(inline_sends <= 2 * kEchoes);
    if (!inlined) CHECK(inline_sends == 0);
  }
}

TEST_CASE("simulation: registrations are counted by what they are for", "[simulation][counters]") {
  const std::string isolation = GENERATE("none", "connection");
  CAPTURE(isolation);
  const std::string options = "in-place=yes&keepalive=0ms&isolation=" + isolation;
  Place place("?" + options);
  const auto sum = [&] {
    return static_cast<std::int64_t>(place.counter("registrations_windows") +
                                     place.counter("registrations_buffers") +
                                     place.counter("registrations_user_memory"));
  };
  place.join(options);
  CHECK(sum() == registered(place));
  CHECK(place.counter("registrations_windows") >= 2);
  CHECK(place.counter("registrations_buffers") >= 2);
  CHECK(place.counter("registrations_user_memory") == 0);
  // In a domain of its own, each window is a registration.
  if (isolation == "connection")
    CHECK(place.counter("registrations_windows") == place.counter("windows"));
  {
    const std::uint64_t buffers = place.counter("registrations_buffers");
    Store store(place, 1 << 20);
    Reader reader(*place.server, 5);
    for (std::size_t at = 0; at < 1 << 20; at += 1 << 18) {
      REQUIRE(place.client->send(store.part(at, 1 << 18)) == 1 << 18);
      RUN_UNTIL(place.loop, reader.size == at + (1 << 18));
    }
    CHECK(place.counter("registrations_user_memory") == 1);
    CHECK(place.counter("registrations_buffers") == buffers);
    CHECK(sum() == registered(place));
    // Copied, it takes memory to send from.
    REQUIRE(place.client->write(store.bytes.data(), 200'000) == 200'000);
    RUN_UNTIL(place.loop, reader.size == (1 << 20) + 200'000);
    CHECK(place.counter("registrations_user_memory") == 1);
    if (isolation == "connection") CHECK(place.counter("registrations_buffers") > buffers);
  }
  CHECK(sum() == registered(place));
}
