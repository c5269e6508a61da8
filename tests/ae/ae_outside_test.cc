// SPDX-License-Identifier: BSD-3-Clause
// External influences on a loop: the wall clock jumps, the process is stopped, signals interrupt
// all calls.

#include <ev.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <ctime>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/loop_kit.h"
#include "tests/support/testing.h"
#include "tests/support/wall_clock.h"

namespace {

using namespace loop_kit;
using testing::WallClock;

/// Sends this thread signals repeatedly, with a handler that only counts.
class Nuisance {
 public:
  Nuisance() : target_(pthread_self()) {
    struct sigaction action {};
    action.sa_handler = [](int) { ++signals; };  // without SA_RESTART
    sigaction(SIGUSR1, &action, &before_);
    thread_ = std::thread([this] {
      while (!over_) {
        pthread_kill(target_, SIGUSR1);
        std::this_thread::sleep_for(200us);
      }
    });
  }
  ~Nuisance() {
    over_ = true;
    thread_.join();
    sigaction(SIGUSR1, &before_, nullptr);
  }
  Nuisance(const Nuisance&) = delete;
  Nuisance& operator=(const Nuisance&) = delete;
  static inline std::atomic<int> signals{0};

 private:
  const pthread_t target_;
  struct sigaction before_ {};
  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace

TEST_CASE("event loop: a wall clock that jumps moves no timer", "[ae][hostile]") {
  const WallClock wall;
  AnyLoop loop;
  for (const auto by : {3600s, -7200s, 3600s}) {
    CAPTURE(by.count());
    const auto begun = steady_clock::now();
    bool ran = false, late = false;
    loop.add_time_event(60ms, [&] {
      ran = true;
      return kNoMore;
    });
    const ae::TimerId much_later = loop.add_time_event(600s, [&] {
      late = true;
      return kNoMore;
    });
    loop.process_events(kPoll);
    const double before = ev_time();
    WallClock::jump(by);
    REQUIRE((ev_time() - before > 3000) == (by > 0s));  // libev notices the jump
    REQUIRE(runs_until(loop, [&] { return ran; }));
    REQUIRE(steady_clock::now() - begun >= 60ms);
    REQUIRE_FALSE(late);
    REQUIRE(loop.remove_time_event(much_later));
  }
}

TEST_CASE("event loop: after a stop of the process a timer is late once, not many times",
          "[ae][hostile]") {
  std::array<int, 2> pipes{};
  REQUIRE(::pipe(pipes.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    // Ticks until one tick was late, and some more; the exit status reports errors.
    AnyLoop loop;
    auto last = loop.now();
    int after = 0, wrong = 0;
    bool late = false;
    loop.add_time_event(20ms, [&]() -> ae::Duration {
      const auto now = loop.now();  // of this iteration: the next tick is 20 ms later
      const auto gap = now - last;
      last = now;
      if (!late) write_byte(pipes[1]);
      if (late && gap < 15ms) wrong = 1;  // missed ticks must not be repeated
      if (late) ++after;
      late = late || gap > 400ms;
      return 20ms;
    });
    const bool done = runs_until(loop, [&] { return after == 5; });
    ::_exit(done ? wrong : 2);
  }
  char byte = 0;
  REQUIRE(::read(pipes[0], &byte, 1) == 1);  // it ticks
  REQUIRE(::kill(child, SIGSTOP) == 0);
  std::this_thread::sleep_for(800ms);  // how long it is stopped
  REQUIRE(::kill(child, SIGCONT) == 0);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  ::close(pipes[0]);
  ::close(pipes[1]);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
}

namespace {

void require_calls_work(const testing::Transport& transport) {
  const testing::EchoThread echo(transport);
  testing::Site site(transport);
  const int before = Nuisance::signals;
  const Nuisance nuisance;
  for (int round = 0; round < 5; ++round) {
    const conn::ConnectionPtr client = site.type.create(site.loop);
    REQUIRE(client->connect_blocking(echo.address(), 20s));
    std::string bytes(300'000, 'x'), back(bytes.size(), '\0');
    bytes.back() = '\n';
    REQUIRE(client->sync_write(bytes.data(), bytes.size(), 20s) == 300'000);
    REQUIRE(client->sync_read(back.data(), back.size(), 20s) == 300'000);
    REQUIRE(back == bytes);
    REQUIRE(client->sync_write("line\r\n", 6, 20s) == 6);
    char line[10];
    REQUIRE(client->sync_readline(line, sizeof line, 20s) == 4);
    testing::send(site.loop, *client, bytes);
    REQUIRE(testing::receive(site.loop, *client, bytes.size()) == bytes);
  }
  RUN_UNTIL(site.loop, Nuisance::signals - before > 20);
}

}  // namespace

TEST_CASE("signals: they interrupt every blocking call, and none of them fails for it",
          "[ae][conn][hostile]") {
  FOR_EVERY_TRANSPORT(transport) {
    // Without threads the peer would have to run on the blocked thread itself.
    if (transport.reaches_far) require_calls_work(transport);
  }
}
