// SPDX-License-Identifier: BSD-3-Clause
// resume=yes: ends and moves that meet a loss of the path or the end of the stream.

#include <cerrno>
#include <string>
#include <string_view>

#include "tests/simulation/resume_kit.h"

using namespace simulation;
using testing::Contains;

namespace {

std::string fact(const conn::Connection& of, std::string_view name) {
  for (const auto& [key, value] : of.info())
    if (key == name) return value;
  return "?";
}

}  // namespace

TEST_CASE("resume: who closes without linger has closed, and its peer hears of it at once",
          "[simulation][resume]") {
  const bool server_closes = GENERATE(false, true), shuts = GENERATE(false, true);
  for (const Profile* profile : serving_profiles()) {
    if (profile->iwarp) continue;
    CAPTURE(profile->name, server_closes, shuts);
    Pair pair(*profile, {}, kResume + "&linger=0", kResume + "&linger=0");
    conn::Connection& stays = server_closes ? *pair.client : *pair.server;
    Talker staying(stays, 2, 1, 100);
    pair.room.run_for(10ms);
    if (shuts) {
      (server_closes ? pair.server : pair.client)->shutdown();
      RUN_UNTIL(pair.room.loop, !staying.ending().empty());
    }
    (server_closes ? pair.server : pair.client).reset();
    pair.room.run_for(1s);
    CHECK(pair.counted("paths_lost") == 0);
    // As without resume=yes, a stream that is cut is not mistaken for one that has ended.
    if (!shuts) CHECK_THAT(staying.ending(), Contains("abort"));
    staying.more(100'000'000);
    RUN_UNTIL(pair.room.loop, stays.state() != conn::State::kConnected);
    if (shuts) CHECK_THAT(stays.last_error(), Contains("closed"));
  }
}

TEST_CASE("resume: a request for a path that came to the loop before a move is asked again",
          "[simulation][resume]") {
  const bool in_two_steps = GENERATE(false, true);
  for (const Profile* profile : serving_profiles()) {
    if (profile->iwarp) continue;
    CAPTURE(profile->name, in_two_steps);
    Pair pair(*profile);
    testing::AnyLoop other;
    const auto run_both = [&](int turns) {
      for (int turn = 0; turn < turns; ++turn) {
        testing::turns(pair.room.loop, 1);
        testing::turns(other, 1);
        pair.room.world.advance(pair.room.world.now() + 10us);
      }
    };
    {
      Talker client(*pair.client, 1, 2, 1000), server(*pair.server, 2, 1, 1000);
      pair.room.run_for(50ms);
      // While memory of the old path is reserved, the server cannot take a new one.
      REQUIRE_FALSE(pair.server->reserve(100).empty());
      pair.room.world.set_path(*pair.room.near, *pair.room.far, false);
      RUN_UNTIL(pair.room.loop, pair.counted("paths_lost") == 2);
      pair.room.world.set_path(*pair.room.near, *pair.room.far, true);
      RUN_UNTIL(pair.room.loop, fact(*pair.client, "phase") == "connecting");
      pair.room.run_for(5ms);
      REQUIRE(fact(*pair.server, "phase") == "lost");
      pair.server->commit(0);
      if (in_two_steps) {
        REQUIRE(pair.server->leave());
        REQUIRE(pair.server->join(other));
      } else {
        REQUIRE(pair.server->rebind(other));
      }
      // The request's rdma_cm id belongs to the other loop, which may be on another thread.
      for (int turn = 0; turn < 20; ++turn) {
        testing::turns(other, 1);
        CHECK(fact(*pair.server, "phase") == "lost");
      }
      client.more(1000);
      server.more(1000);
      for (int turn = 0; turn < 10'000; ++turn) {
        if (client.received() == 2000 && server.received() == 2000) break;
        if (!(client.ending() + server.ending()).empty()) break;
        run_both(20);
      }
      CHECK(client.ending() + server.ending() == "");
      CHECK(server.received() == 2000);
    }
    pair.client.reset();
    pair.server.reset();
    run_both(20'000);
  }
}

TEST_CASE("resume: a connection that has ended does not move, and counts as no loss",
          "[simulation][resume]") {
  for (const Profile* profile : serving_profiles()) {
    if (profile->iwarp) continue;
    CAPTURE(profile->name);
    Pair pair(*profile);
    testing::AnyLoop other;
    pair.room.run_for(10ms);
    pair.client->abort();
    pair.client.reset();
    // The message that says so has arrived, and nobody has looked yet.
    testing::turns(pair.room.loop, 1);
    pair.room.world.advance(pair.room.world.now() + 1ms);
    errno = 0;
    CHECK_FALSE(pair.server->rebind(other));
    CHECK(errno == EAGAIN);
    CHECK(pair.counted("paths_lost") == 0);
    RUN_UNTIL(pair.room.loop, pair.server->state() == conn::State::kError);
    pair.server.reset();
    RUN_UNTIL(pair.room.loop, pair.room.type.counters(pair.room.loop).open == 0);
    CHECK(pair.counted("paths_lost") == 0);
    // Others can move.
    const conn::ConnectionPtr next = pair.room.dial(kResume);
    RUN_UNTIL(pair.room.loop, pair.server && next->state() == conn::State::kConnected);
    CHECK(pair.server->leave());
    CHECK(pair.server->join(pair.room.loop));
  }
}
