// SPDX-License-Identifier: BSD-3-Clause
// Connections that lose their path while there is no memory.

#include <cstdint>
#include <string>

#include "tests/simulation/memory.h"
#include "tests/simulation/resume_kit.h"

using namespace simulation;

namespace {

std::string path_of(const conn::Connection& connection) {
  for (const auto& [key, value] : connection.info())
    if (key == "path-state") return value;
  return {};
}

}  // namespace

TEST_CASE("resume: a connection that finds no new path fails without memory as well",
          "[simulation][resume]") {
  if (chosen_profile().iwarp) return;  // nothing resumes there
  const std::string options = "resume=yes&resume-time=300ms&keepalive=100ms";
  for (std::uint64_t number = 1; number <= 6; ++number) {
    CAPTURE(number);
    Room room({}, "?" + options);
    const conn::ConnectionPtr client = room.connected(options);
    conn::Connection& server = *room.log.clients.front();
    server.set_read_handler(nullptr);
    room.world.set_path(*room.near, *room.far, false);
    RUN_UNTIL(room.loop, path_of(server) == "lost");
    const Nanoseconds begin = room.world.now();
    while (server.state() == conn::State::kConnected) {
      REQUIRE(room.world.now() - begin < 20s);
      fail_allocation(Allocator::kNew, number, 3);
      (void)room.loop.process_events(ae::kAllEvents | ae::kDontWait);
      fail_allocation(Allocator::kNew, 0);
      (void)room.world.advance(room.world.now() + 1ms);
    }
    CHECK(server.state() == conn::State::kError);
    CHECK(room.world.now() - begin > 300ms);
  }
}

// What was under way is written again, so a failure while a path is granted loses no byte.
TEST_CASE("resume: no failed allocation on the way to a new path looks like a gap",
          "[torture][resume]") {
  if (chosen_profile().iwarp) return;  // nothing resumes there
  bool failed = true;
  for (std::uint64_t number = 1; failed; ++number) {
    CAPTURE(number);
    REQUIRE(number < 500);
    Pair pair;
    Talker client(*pair.client, 1, 2, 1000), server(*pair.server, 2, 1, 1000);
    pair.room.run_for(50ms);
    pair.room.world.set_path(*pair.room.near, *pair.room.far, false);
    server.more(3000);
    client.more(3000);
    RUN_UNTIL(pair.room.loop, pair.counted("paths_lost") == 2);
    pair.room.run_for(200ms);
    pair.room.world.set_path(*pair.room.near, *pair.room.far, true);
    fail_allocation(Allocator::kNew, number);
    const Nanoseconds begin = pair.room.world.now();
    const auto over = [&] {
      return (client.received() == 4000 && server.received() == 4000) ||
             !(client.ending() + server.ending()).empty();
    };
    while (!over() && pair.room.world.now() - begin < 8s) {
      try {
        (void)pair.room.loop.process_events(ae::kAllEvents | ae::kDontWait);
      } catch (const std::bad_alloc&) {
      }
      (void)pair.room.world.advance(pair.room.world.now() + 100us);
    }
    failed = allocation_failed();
    fail_allocation(Allocator::kNew, 0);
    CAPTURE(client.ending(), server.ending());
    CHECK((client.ending() + server.ending()).find("gone") == std::string::npos);
    if (!failed) CHECK(client.ending() + server.ending() == "");
  }
}
