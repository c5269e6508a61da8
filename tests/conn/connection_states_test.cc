// SPDX-License-Identifier: BSD-3-Clause
// What a connection reports in states that other tests only pass through.
#include <cerrno>
#include <set>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/testing.h"

using conn::State;
using testing::Site;
using testing::Transport;
using namespace std::chrono_literals;

namespace {

const Transport kTcp{.name = "tcp"};

}  // namespace

TEST_CASE("connection: every state has a word of its own, and no other number has", "[conn]") {
  std::set<std::string> words;
  for (const State state : {State::kNone, State::kConnecting, State::kAccepting, State::kConnected,
                            State::kClosed, State::kError}) {
    words.insert(std::string(conn::to_string(state)));
  }
  CHECK(words ==
        std::set<std::string>{"none", "connecting", "accepting", "connected", "closed", "error"});
  CHECK(conn::to_string(static_cast<State>(99)) == "?");
}

TEST_CASE("connect_blocking: only a fresh connection connects; others say why not", "[conn][tcp]") {
  Site site(kTcp);
  conn::ConnectionPtr accepted;
  const conn::ListenerPtr listener =
      site.listen([&](conn::ConnectionPtr peer) { accepted = std::move(peer); });
  const conn::Endpoint to = testing::address_of(*listener);

  SECTION("one that is connected") {
    const conn::ConnectionPtr connected = site.connect(to);
    RUN_UNTIL(site.loop, connected->state() == State::kConnected);
    CHECK_FALSE(connected->connect_blocking(to, 1s));
    CHECK(errno == EISCONN);
    CHECK(connected->state() == State::kConnected);
  }
  SECTION("one that is on its way") {
    const conn::ConnectionPtr connecting = site.connect(to);
    REQUIRE(connecting->state() == State::kConnecting);
    CHECK_FALSE(connecting->connect_blocking(to, 1s));
    CHECK(errno == EALREADY);
    RUN_UNTIL(site.loop, connecting->state() == State::kConnected);
  }
  SECTION("one that failed, with its failure") {
    const conn::ConnectionPtr failed = site.connect(site.deserted());
    RUN_UNTIL(site.loop, failed->state() == State::kError);
    CHECK_FALSE(failed->connect_blocking(to, 1s));
    CHECK(errno == ECONNREFUSED);
    CHECK(failed->state() == State::kError);
  }
}
