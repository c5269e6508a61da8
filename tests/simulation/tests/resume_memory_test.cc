// SPDX-License-Identifier: BSD-3-Clause
// The end of a connection that finds no new path, while there is no memory.

#include <cstdint>
#include <string>

#include "tests/simulation/memory.h"
#include "tests/simulation/room.h"

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
