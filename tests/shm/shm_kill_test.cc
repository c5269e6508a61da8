// SPDX-License-Identifier: BSD-3-Clause
// A process of shm that is killed after each of its stores and calls in turn, from the hello to the
// end of the connection, as client and as server. The other process gets the bytes that were
// published, then the end of the stream or an error; it never hangs, and keeps no descriptor.
//
//   AECONN_KILL_ROUNDS=20   how often (default 1): the order of both ends' steps differs each time

#include <cstdlib>

#include "tests/shm/killed_peer.h"
#include "tests/shm/shm_kit.h"
#include "tests/support/testing.h"

#if defined(__x86_64__)

using conn::ConnectionPtr;
using conn::shm::Words;
using testing::KilledPeer;
using testing::Steps;
using namespace std::chrono_literals;

namespace {

const testing::Transport kShm{.name = "shm", .lingers = false};
constexpr std::uint64_t kBytes = 150'000;  // in each direction: more than a ring of 64k holds

enum class Role { kClient, kServer };
enum class Ending { kClose, kShutdown };

/// What the process does that is killed: writes until its ring has been full, reads, and ends.
void exchange(ae::EventLoop& loop, ConnectionPtr connection, Ending ending) {
  testing::Sender sender(*connection, 1, kBytes);
  while (!sender.done()) loop.process_events(ae::kFullIteration);
  testing::Receiver receiver(*connection, 2);
  while (receiver.received < kBytes) loop.process_events(ae::kFullIteration);
  if (ending == Ending::kShutdown) {
    if (connection->shutdown() != 0) _exit(1);
    while (!receiver.ended) loop.process_events(ae::kFullIteration);
  }
  connection.reset();
}

void run_client(const conn::Endpoint& to, Ending ending) {
  testing::AnyLoop loop;
  const conn::Registry registry = testing::test_registry();
  ConnectionPtr connection = registry.require("shm").create(loop);
  connection->connect(to, [](conn::Connection&) {});
  while (connection->state() == conn::State::kConnecting) loop.process_events(ae::kFullIteration);
  exchange(loop, std::move(connection), ending);
}

void run_server(const conn::Endpoint& at, Ending ending, Steps& steps) {
  testing::AnyLoop loop;
  const conn::Registry registry = testing::test_registry();
  ConnectionPtr connection;
  const conn::ListenerPtr listener = registry.require("shm").listen(
      loop, at, [&](ConnectionPtr accepted) { connection = std::move(accepted); });
  steps.ready = true;
  while (!connection) loop.process_events(ae::kFullIteration);
  exchange(loop, std::move(connection), ending);
}

/// The process that lives on.
struct Survivor : testing::Site {
  explicit Survivor(Role its_role, Ending its_ending)
      : Site(kShm), role(its_role), ending(its_ending), address(fresh_small()) {
    if (role == Role::kClient) {
      listener = type.listen(loop, address, [this](ConnectionPtr one) { mine = std::move(one); });
      listener->on_refused([this](const conn::Failure&) { ++refused; });
    }
    // Conditions about the other process are looked at again and again.
    loop.add_time_event(1ms, [] { return ae::Duration(1ms); });
  }

  /// Runs a process that is killed after this step. Returns whether it got there.
  bool run(testing::KillAfter last) {
    refused = 0;
    if (role == Role::kServer) address = fresh_small();
    KilledPeer peer(last, 20 * testing::slower(), [this](Steps& steps) {
      role == Role::kClient ? run_client(address, ending) : run_server(address, ending, steps);
    });
    set_up(peer);
    if (mine) talk(peer);
    mine.reset();
    RUN_UNTIL(loop, peer.over());
    CAPTURE(last.step, last.word, peer.steps().last.load());
    REQUIRE((peer.killed() || peer.finished()));
    testing::turns(loop, 2);
    return peer.killed();
  }

  const Role role;
  const Ending ending;
  conn::Endpoint address;
  conn::ListenerPtr listener;
  ConnectionPtr mine;  // null: the peer was killed before there was a connection
  int refused = 0;

 private:
  conn::Endpoint fresh_small() {
    conn::Endpoint at = fresh();
    at.options = conn::Options::parse("ring=64k");
    return at;
  }
  void set_up(KilledPeer& peer) {
    if (role == Role::kClient) {
      RUN_UNTIL(loop, mine || refused != 0);
      return;
    }
    RUN_UNTIL(loop, peer.over() || peer.steps().ready);
    mine = Site::connect(address);
    RUN_UNTIL(loop, mine->state() != conn::State::kConnecting);
    if (mine->state() == conn::State::kConnected) return;
    const int error = mine->error_code().value();
    CHECK((error == ECONNRESET || error == EPIPE));
    CHECK_FALSE(mine->last_error().empty());
    mine.reset();
  }
  void talk(KilledPeer& peer) {
    const Steps& steps = peer.steps();
    // The peer sleeps because its ring is full, then because the other one is empty.
    RUN_UNTIL(loop, peer.over() || steps.stored[offsetof(Words, room_wish)]);
    testing::Receiver receiver(*mine, 1);
    RUN_UNTIL(loop, peer.over() || steps.stored[offsetof(Words, wish)]);
    testing::Sender sender(*mine, 2, kBytes);
    RUN_UNTIL(loop, receiver.ended || receiver.error != 0);
    RUN_UNTIL(loop, sender.done() || sender.error != 0);
    // The peer notes a store only after it, so what was read may not be noted yet.
    RUN_UNTIL(loop, peer.over() || steps.fin);
    CAPTURE(steps.count.load(), steps.last.load(), steps.fin.load(), steps.closed.load());
    CHECK(receiver.intact);
    CHECK(receiver.received == steps.tail);
    if (receiver.error != 0) {
      CHECK(receiver.error == ECONNRESET);
      CHECK_FALSE((steps.fin && steps.closed));
    } else {
      CHECK(steps.fin);
    }
    CHECK((sender.error == 0 || sender.error == EPIPE || sender.error == ECONNRESET));
  }
};

}  // namespace

TEST_CASE("shm kill: after each store and each call of the peer there is an end, and every byte",
          "[shm][shm-kill]") {
  const Role role = GENERATE(Role::kClient, Role::kServer);
  const Ending ending = GENERATE(Ending::kClose, Ending::kShutdown);
  CAPTURE(role == Role::kClient, ending == Ending::kClose);
  const char* const told = std::getenv("AECONN_KILL_ROUNDS");
  const std::uint64_t rounds = told != nullptr ? std::strtoull(told, nullptr, 10) : 1;
  const std::size_t before = testing::count_descriptors();
  {
    Survivor survivor(role, ending);
    const std::size_t idle = testing::count_descriptors();
    std::uint64_t kills = 0;
    const auto killed = [&](testing::KillAfter last) {
      const bool reached = survivor.run(last);
      REQUIRE(testing::open_descriptors_become(idle));
      kills += reached ? 1 : 0;
      return reached;
    };
    for (std::uint64_t round = 0; round < rounds; ++round) {
      for (std::uint64_t step = 1; killed({.step = step}); ++step) {
      }
      // The number of steps differs, so that the last ones may not have been reached.
      for (const std::size_t word :
           {offsetof(Words, tail), offsetof(Words, fin), offsetof(Words, head),
            offsetof(Words, closed), offsetof(Words, wish), offsetof(Words, room_wish),
            offsetof(Words, room_at)}) {
        CAPTURE(word);
        CHECK(killed({.word = word}));
      }
    }
    std::printf("%llu kills of a %s\n", static_cast<unsigned long long>(kills),
                role == Role::kClient ? "client" : "server");
  }
  CHECK(testing::count_descriptors() == before);
}

#endif
