// SPDX-License-Identifier: BSD-3-Clause
// EventSlot runs a handler where it is stored. Whatever handlers do to their slot while they run,
// the same happens as with ae::HandlerSlot, which moves a handler out to run it.

#include "conn/core/event_slot.h"

#include <memory>
#include <random>
#include <string>

#include "ae/core/handler_slot.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::EventSlot;
using Moving = ae::HandlerSlot<void(Connection&)>;

namespace {

struct Thrown {};

/// Runs handlers that do what the random numbers say to the slot that runs them, and writes down
/// what happens: calls, returns, exceptions, and when each handler is freed.
template <class Slot>
class Play {
 public:
  Play(Connection& connection, unsigned seed) : connection_(connection), random_(seed) {}
  std::string run() {
    for (int i = 0; i < 6; ++i) {
      act();
      call();
    }
    slot_.set(nullptr);
    return trace_;
  }

 private:
  /// Owned by a handler: its destructor notes that the handler was freed.
  struct Token {
    Token(Play& its, int number) : play(its), id(number) {}
    ~Token() {
      play.trace_ += '~' + std::to_string(id) + ' ';
      if (play.random_() % 8 == 0) play.replace();
    }
    Play& play;
    const int id;
  };

  void call() {
    try {
      slot_.run(connection_);
    } catch (const Thrown&) {
      trace_ += "! ";
    }
  }
  void replace() {
    if (made_ == 40) return slot_.set(nullptr);
    const int id = ++made_;
    trace_ += '=' + std::to_string(id) + ' ';
    // Captures that fit into a std::function, and captures that it must allocate.
    if (id % 2 == 0)
      slot_.set([this, token = std::make_shared<Token>(*this, id)](Connection&) {
        handle(token->id);
        trace_ += ')' + std::to_string(token->id) + ' ';
      });
    else
      slot_.set([this, id](Connection&) {
        handle(id);
        trace_ += ')' + std::to_string(id) + ' ';  // `id` is still what it was
      });
  }
  void handle(int id) {
    trace_ += std::to_string(id) + "( ";
    if (depth_ == 5) return;
    ++depth_;
    struct Leave {
      int& depth;
      ~Leave() { --depth; }
    } const leave{depth_};
    for (unsigned i = random_() % 4; i != 0; --i) act();
    if (random_() % 6 == 0) throw Thrown{};
  }
  void act() {
    switch (random_() % 5) {
      case 0:
      case 1:
        return replace();
      case 2:
        trace_ += "=0 ";
        return slot_.set(nullptr);
      default:
        return call();
    }
  }

  Connection& connection_;
  std::mt19937 random_;
  std::string trace_;
  int made_ = 0, depth_ = 0;
  Slot slot_;
};

}  // namespace

TEST_CASE("event slot: the same happens as with a slot that moves its handler", "[conn]") {
  testing::Pair pair(testing::Transport{.name = "tcp"});
  std::string longest;
  for (unsigned seed = 0; seed < 5000; ++seed) {
    const std::string trace = Play<EventSlot>(*pair.client, seed).run();
    CAPTURE(seed);
    REQUIRE(trace == Play<Moving>(*pair.client, seed).run());
    if (trace.size() > longest.size()) longest = trace;
  }
  REQUIRE(longest.size() > 200);  // that the play is one
}

TEST_CASE("event slot: a handler that was replaced keeps its captures until it returns", "[conn]") {
  testing::Pair pair(testing::Transport{.name = "tcp"});
  EventSlot slot;
  int old = 0, fresh = 0;
  int* const mark = &old;
  slot.set([&slot, mark, &fresh](Connection&) {
    slot.set([&fresh](Connection&) { ++fresh; });
    slot.set([&fresh](Connection&) { fresh += 10; });
    ++*mark;
  });
  slot.run(*pair.client);
  REQUIRE(old == 1);
  REQUIRE(fresh == 0);
  slot.run(*pair.client);
  REQUIRE(fresh == 10);
}
