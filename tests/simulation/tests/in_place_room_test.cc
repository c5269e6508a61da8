// SPDX-License-Identifier: BSD-3-Clause
// In-place data over rdma: the memory that reserve() returns, and that it remains valid while the
// program fills it.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "tests/simulation/in_place.h"
#include "tests/simulation/memory.h"

using namespace simulation;
using conn::Connection;
using conn::rdma::registered_bytes;
using testing::Pattern;

TEST_CASE("simulation: room that is filled outlives the connection and its device",
          "[simulation][in-place]") {
  const std::string end = GENERATE("the peer closes", "the device goes", "closed", "the loop ends");
  CAPTURE(end);
  Place place;
  place.join();
  const conn::ConnectionPtr other = place.connected();
  put(*place.server, "before");
  const std::span<std::byte> room = place.server->reserve(30'000);
  REQUIRE(room.size() >= 30'000);
  CHECK(place.server->write("x", 1) == -1);
  CHECK(errno == EBUSY);
  if (end == "the peer closes") place.client.reset();
  if (end == "the device goes") place.world.remove_device(*place.near);
  if (end == "closed") return place.log.clients.clear();
  if (end == "the loop ends") {
    const conn::ConnectionPtr keep = std::move(place.log.clients.front());
    place.log.clients.clear();
    place.listener.reset();
    place.loop_holder.reset();
    return keep->commit(1);
  }
  place.run_for(5s);
  if (end == "the device goes") CHECK(place.near->handles.empty());
  if (end == "the peer closes") place.echoes(*other, 100'000);  // must not use this memory
  std::memset(room.data(), 'r', room.size());
  place.server->commit(30'000);
  CHECK(place.server->reserve(1).empty());
}

TEST_CASE("simulation: room stays while what was committed before it arrives",
          "[simulation][in-place]") {
  const auto before = GENERATE(std::size_t{4}, std::size_t{3000});
  Place place;
  place.join();
  const std::string head(before, 'h'), tail(500, 't');
  put(*place.client, head);
  const std::span<std::byte> room = place.client->reserve(tail.size());
  REQUIRE(room.size() >= tail.size());
  REQUIRE(testing::receive(place.loop, *place.server, before) == head);
  place.run_for(10s);  // the device has completed it by then
  std::memcpy(room.data(), tail.data(), tail.size());
  place.client->commit(tail.size());
  CHECK(testing::receive(place.loop, *place.server, tail.size()) == tail);
}

TEST_CASE("simulation: room is never short, and there is none when send-buffer is full",
          "[simulation][in-place]") {
  const std::string buffer = GENERATE("4096", "100000", "262144");
  CAPTURE(buffer);
  Place place("?in-place=yes&keepalive=0ms&window=4096&max-window=4096&send-buffer=" + buffer);
  place.join();
  const Pattern pattern(8);
  std::size_t written = 0, size = 1;
  const auto fill = [&](Connection& here) {
    for (;;) {
      const std::span<std::byte> room = here.reserve(size);
      if (room.empty()) return;
      REQUIRE(room.size() >= size);
      std::size_t done = 0;
      while (done < size) {
        const std::string_view part = pattern.at(written + done).substr(0, size - done);
        std::memcpy(room.data() + done, part.data(), part.size());
        done += part.size();
      }
      here.commit(size);
      written += size;
      size = 1 + size * 31 % conn::kMaxContiguous;
    }
  };
  place.client->set_read_handler(nullptr);
  fill(*place.server);
  CHECK(errno == EAGAIN);
  CHECK(written <= std::stoul(buffer) + conn::kMaxContiguous);
  const std::size_t before = written;
  int calls = 0;
  place.server->set_write_handler([&](Connection& here) {
    ++calls;
    fill(here);
    if (written > before + 500'000) here.set_write_handler(nullptr);
  });
  place.run_for(100ms);
  CHECK(calls < 3);  // not called again and again in vain
  Reader reader(*place.client, 8);
  RUN_UNTIL(place.loop, !place.server->has_write_handler() && reader.size == written);
  CHECK(reader.intact);
}

TEST_CASE("simulation: at memory-limit there is still room for who has nothing under way",
          "[simulation][in-place]") {
  Place place("?in-place=yes&keepalive=0ms&memory-limit=" +
              std::string(chosen_profile().bound_keys() ? "3m" : "4m"));
  place.join("memory-limit=0&keepalive=0ms");
  Connection& server = *place.server;
  std::vector<conn::ConnectionPtr> hogs;
  for (int i = 0; i < 6; ++i) {
    conn::ConnectionPtr next = place.dial("memory-limit=0&keepalive=0ms");
    RUN_UNTIL(place.loop, next->state() != conn::State::kConnecting);
    if (next->state() != conn::State::kConnected) break;
    RUN_UNTIL(place.loop, place.log.clients.back().get() != &server);
    hogs.push_back(std::move(next));
    place.run_for(10ms);
    Connection& hog = *place.log.clients.back();
    hog.set_read_handler(nullptr);
    for (std::span<std::byte> room; !(room = hog.reserve(conn::kMaxContiguous)).empty();)
      hog.commit(conn::kMaxContiguous);
  }
  Reader reader(*place.client, 6);
  const std::string sent = pattern_of(6, 300'000);
  std::size_t written = 0;
  const auto more = [&](Connection& here) {
    while (written < sent.size()) {
      const std::size_t part = std::min<std::size_t>(sent.size() - written, 50'000);
      const std::span<std::byte> room = here.reserve(part);
      if (room.empty()) return;
      std::memcpy(room.data(), sent.data() + written, part);
      here.commit(part);
      written += part;
    }
    here.set_write_handler(nullptr);
  };
  server.set_write_handler(more);
  RUN_UNTIL(place.loop, reader.size == sent.size());
  CHECK(reader.intact);
  CHECK(registered_bytes() > 0);
}
