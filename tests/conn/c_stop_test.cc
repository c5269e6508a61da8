// SPDX-License-Identifier: BSD-3-Clause
// The graceful stop of the C interface on several loops: those of a group, and those of workers of
// the program with a loop beside them.

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/await.h"
#include "tests/support/c_stop_kit.h"
#include "tests/support/catch.h"
#include "tests/support/raw_socket.h"
#include "tests/support/signal_mask.h"
#include "tests/support/testing.h"

using namespace testing::c;
using testing::RawSocket;

namespace {

constexpr std::size_t kLoops = 3;
constexpr int64_t kNoLimit = -1;

/// How the stream ends: 0, or the error.
int end_of(const RawSocket& client) {
  try {
    return client.receive(1).empty() ? 0 : -1;
  } catch (const std::system_error& error) {
    return error.code().value();
  }
}

/// Loops of a group's own threads, or of workers with a control loop on the thread of the test.
struct Server {
  Server(bool own_workers, int64_t limit, bool begins = true) {
    for (std::size_t i = 0; i < kLoops; ++i) clients.push_back(std::make_unique<Clients>(at_stop));
    if (own_workers) {
      sigset_t ours;
      sigemptyset(&ours);
      sigaddset(&ours, SIGTERM);
      sigaddset(&ours, SIGINT);
      pthread_sigmask(SIG_BLOCK, &ours, nullptr);
      control.reset(aeconn_loop_new());
      for (std::size_t i = 0; i < kLoops; ++i) loops.emplace_back(aeconn_loop_new());
      std::vector<aeconn_loop*> all;
      for (const Loop& each : loops) all.push_back(each.get());
      for (aeconn_loop* each : all) workers.emplace_back([each] { aeconn_run(each); });
      group.reset(aeconn_group_of(all.data(), all.size()));
    } else {
      group.reset(aeconn_group_new(kLoops, "c-stop", 0));
    }
    REQUIRE(group != nullptr);
    const aeconn_stop_settings settings{nullptr, begins ? Server::begins : nullptr, nullptr, this};
    stop.reset(aeconn_graceful_stop_new(control.get(), group.get(), limit, &settings));
    INFO(aeconn_error());
    REQUIRE(stop != nullptr);
    at_stop = stop.get();
    Listener listener(aeconn_group_listen(
        group.get(), "tcp://127.0.0.1:0", AECONN_ROUND_ROBIN,
        [](void* self, aeconn_loop* on, aeconn_conn* conn) {
          auto* const its = static_cast<Server*>(self);
          its->clients[aeconn_group_index(its->group.get(), on)]->accept(conn);
        },
        this));
    REQUIRE(listener != nullptr);
    at = conn::Endpoint::parse(aeconn_listener_url(listener.get(), 0));
    REQUIRE(aeconn_graceful_stop_add(stop.get(), listener.release()) == 0);
  }
  ~Server() {
    stop.reset();
    for_each([](Clients& its) {
      while (!its.all.empty()) its.close(its.all.begin()->first);
    });
    end_loops();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  static void begins(void* self, aeconn_loop* on) {
    auto* const its = static_cast<Server*>(self);
    const std::size_t index = aeconn_group_index(its->group.get(), on);
    ++its->begun;
    while (its->held) std::this_thread::yield();
    its->clients[index]->end_idle();
    ++its->told;
  }
  /// Runs `fn` on each loop's thread, and waits for that; does nothing on a loop that has ended.
  void for_each(const std::function<void(Clients&)>& fn) {
    struct Call {
      const std::function<void(Clients&)>& fn;
      Server& server;
      std::atomic<std::size_t> done{0};
    } call{fn, *this};
    if (over) return;
    for (std::size_t i = 0; i < kLoops; ++i)
      aeconn_group_post(
          group.get(), i,
          [](void* of, aeconn_loop* on) {
            auto* const its = static_cast<Call*>(of);
            its->fn(*its->server.clients[aeconn_group_index(its->server.group.get(), on)]);
            ++its->done;
          },
          &call);
    testing::await([&] { return call.done == kLoops; });
  }
  /// Waits until the stop has ended.
  void run() {
    if (control != nullptr) {
      REQUIRE(aeconn_run(control.get()) == 0);
    } else {
      REQUIRE(aeconn_group_wait(group.get()) == 0);
      over = true;
    }
  }
  void end_loops() {
    over = true;
    aeconn_group_stop(group.get());
    for (std::thread& each : workers) each.join();
    workers.clear();
    if (control == nullptr) return;
    loops.clear();
    control.reset();
  }
  /// Clients on all loops, each with one answer.
  std::vector<RawSocket> connect(std::size_t count = 2 * kLoops) const {
    std::vector<RawSocket> all;
    for (std::size_t i = 0; i < count; ++i) {
      all.push_back(RawSocket::connect(at));
      all.back().send("hello\n");
      REQUIRE(all.back().receive(6) == "hello\n");
    }
    return all;
  }
  void ask_to_wait(const std::vector<RawSocket>& from) const {
    const int before = taken();
    for (const RawSocket& each : from) each.send("wait\n");
    testing::await([&] { return taken() == before + static_cast<int>(from.size()); });
  }
  int taken() const {
    int all = 0;
    for (const auto& each : clients) all += each->taken;
    return all;
  }
  aeconn_stop_phase phase() const { return aeconn_graceful_stop_get_phase(stop.get()); }

  testing::SignalMask signals;  // restored last
  std::atomic<aeconn_graceful_stop*> at_stop{nullptr};
  std::vector<std::unique_ptr<Clients>> clients;  // of each loop, used on its thread
  std::atomic<std::size_t> begun{0}, told{0};
  std::atomic<bool> held{false};
  bool over = false;  // the loops have ended
  Loop control;       // null: the first loop of the group
  std::vector<Loop> loops;
  std::vector<std::thread> workers;
  Group group;
  GracefulStop stop;
  conn::Endpoint at;
};

}  // namespace

TEST_CASE("C stop of several loops: a signal ends idle clients of all", "[c][group][stop]") {
  Server server(GENERATE(false, true), kNoLimit);
  const std::vector<RawSocket> clients = server.connect();
  CHECK(server.phase() == AECONN_SERVING);
  REQUIRE(kill(getpid(), SIGTERM) == 0);
  server.run();
  CHECK(server.phase() == AECONN_ENDED);
  CHECK(server.told == kLoops);
  CHECK(aeconn_graceful_stop_status(server.stop.get(), nullptr, nullptr) == 0);
  for (const RawSocket& each : clients) CHECK(each.receive(1).empty());
  CHECK_THROWS(RawSocket::connect(server.at));
}

TEST_CASE("C stop of several loops: one thread asks and another one looks", "[c][group][stop]") {
  Server server(GENERATE(false, true), kNoLimit);
  const std::vector<RawSocket> clients = server.connect();
  server.ask_to_wait(clients);
  aeconn_stop_phase before = AECONN_ENDED, meanwhile = AECONN_ENDED;
  std::atomic<bool> looks{false};
  std::thread looking([&] {
    before = server.phase();
    looks = true;
    while (server.told < kLoops) std::this_thread::yield();
    meanwhile = server.phase();
    for (std::size_t i = 0; i < kLoops; ++i)
      aeconn_group_post(
          server.group.get(), i,
          [](void* self, aeconn_loop* on) {
            auto* const its = static_cast<Server*>(self);
            its->clients[aeconn_group_index(its->group.get(), on)]->answer();
          },
          &server);
    while (server.phase() != AECONN_ENDED) std::this_thread::yield();
  });
  std::thread asking([&] {
    while (!looks) std::this_thread::yield();
    aeconn_graceful_stop_request(server.stop.get());
  });
  server.run();
  asking.join();
  looking.join();
  CHECK(before == AECONN_SERVING);
  CHECK(meanwhile == AECONN_DRAINING);
  for (const RawSocket& each : clients) {
    CHECK(each.receive(5) == "wait\n");
    CHECK(each.receive(1).empty());
  }
  CHECK(aeconn_graceful_stop_status(server.stop.get(), nullptr, nullptr) == 0);
}

TEST_CASE("C stop of several loops: the limit aborts what is left on each", "[c][group][stop]") {
  Server server(GENERATE(false, true), kSecond / 20);
  const std::vector<RawSocket> clients = server.connect();
  std::vector<RawSocket> busy;
  for (std::size_t i = 0; i < kLoops; ++i) busy.push_back(RawSocket::connect(server.at));
  server.ask_to_wait(busy);
  aeconn_graceful_stop_request(server.stop.get());
  server.run();
  uint64_t left = 0;
  CHECK(aeconn_graceful_stop_status(server.stop.get(), &left, nullptr) == 1);
  CHECK(left == kLoops);
  server.end_loops();
  for (const RawSocket& each : busy) CHECK(end_of(each) == ECONNRESET);
  for (const RawSocket& each : clients) CHECK(end_of(each) == 0);
}

TEST_CASE("C stop of several loops: freed early it waits for functions that run",
          "[c][group][stop]") {
  Server server(GENERATE(false, true), kNoLimit);
  const std::vector<RawSocket> clients = server.connect();
  server.ask_to_wait(clients);
  server.held = true;
  std::thread lets_go([&] {
    while (server.begun < kLoops) std::this_thread::yield();
    server.held = false;
  });
  aeconn_graceful_stop_request(server.stop.get());
  while (server.begun < kLoops)
    if (server.control != nullptr) aeconn_turn(server.control.get(), 0);
  server.at_stop = nullptr;
  server.stop.reset();
  CHECK(server.told == kLoops);
  lets_go.join();
  // The loops serve on, without a stop.
  server.for_each([](Clients& its) { its.answer(); });
  for (const RawSocket& each : clients) {
    CHECK(each.receive(5) == "wait\n");
    each.send("on\n");
    CHECK(each.receive(3) == "on\n");
  }
  CHECK(server.told == kLoops);
}

TEST_CASE("C stop of several loops: freed before it begins", "[c][group][stop]") {
  const bool begins = GENERATE(false, true);
  Server server(GENERATE(false, true), kNoLimit, begins);
  const std::vector<RawSocket> clients = server.connect();
  server.at_stop = nullptr;
  // A read handler may just be asking the stop, and freeing waits for it only with `begins`.
  if (!begins) server.for_each([](Clients&) {});
  server.stop.reset();
  CHECK_THROWS(RawSocket::connect(server.at));  // its listeners go with it
  for (const RawSocket& each : clients) {
    each.send("on\n");
    CHECK(each.receive(3) == "on\n");
  }
  CHECK(server.begun == 0U);
}

TEST_CASE("C stop of several loops: on one of their threads it is not made or freed",
          "[c][group][stop]") {
  Server server(GENERATE(false, true), kNoLimit);
  struct Tries {
    Server& server;
    std::atomic<int> done{0};
    aeconn_graceful_stop* made = nullptr;
    int err = 0;
  } tries{server};
  aeconn_group_post(
      server.group.get(), 1,
      [](void* self, aeconn_loop* on) {
        auto* const its = static_cast<Tries*>(self);
        static constexpr int kNone[] = {0};
        const aeconn_stop_settings settings{kNone, Server::begins, nullptr, &its->server};
        its->made = its->server.control == nullptr
                        ? aeconn_graceful_stop_new(nullptr, its->server.group.get(), 0, &settings)
                        : aeconn_graceful_stop_new(on, its->server.group.get(), 0, &settings);
        its->err = errno;
        aeconn_graceful_stop_free(its->server.stop.get());
        ++its->done;
      },
      &tries);
  testing::await([&] { return tries.done == 1; });
  CHECK(tries.made == nullptr);
  CHECK(tries.err == EINVAL);
  aeconn_graceful_stop_request(server.stop.get());
  server.run();  // the stop is there
  CHECK(server.told == kLoops);
}

TEST_CASE("C stop of several loops: workers that have ended first", "[c][group][stop]") {
  Server server(true, kNoLimit);
  const std::vector<RawSocket> clients = server.connect();
  aeconn_graceful_stop_request(server.stop.get());
  server.run();
  server.end_loops();
  CHECK(aeconn_graceful_stop_status(server.stop.get(), nullptr, nullptr) == 0);
  server.stop.reset();  // waits for no loop that was freed
}

TEST_CASE("C stop: one loop that runs on another thread than that which frees the stop",
          "[c][stop]") {
  static constexpr int kNone[] = {0};
  const Loop loop(aeconn_loop_new());
  std::atomic<int> told{0};
  GracefulStop stop;
  std::atomic<bool> made{false};
  std::thread runs([&] {
    const aeconn_stop_settings settings{
        kNone, [](void* count, aeconn_loop*) { ++*static_cast<std::atomic<int>*>(count); }, nullptr,
        &told};
    stop.reset(aeconn_graceful_stop_new(loop.get(), nullptr, kNoLimit, &settings));
    made = true;
    aeconn_run(loop.get());
  });
  testing::await([&] { return made.load(); });
  REQUIRE(stop != nullptr);
  stop.reset();
  aeconn_post(
      loop.get(), [](void* its) { aeconn_stop(static_cast<aeconn_loop*>(its)); }, loop.get());
  runs.join();
  CHECK(told == 0);
}

TEST_CASE("C stop: freed on the thread that runs the loop, but did not make it", "[c][stop]") {
  static constexpr int kNone[] = {0};
  const Loop loop(aeconn_loop_new());
  struct Made {
    aeconn_loop* loop;
    GracefulStop stop;
    int begun = 0;
  } made{loop.get(), nullptr};
  const bool begins = GENERATE(false, true);
  const aeconn_stop_settings settings{kNone,
                                      [](void* self, aeconn_loop* on) {
                                        auto& its = *static_cast<Made*>(self);
                                        ++its.begun;
                                        its.stop.reset();
                                        aeconn_stop(on);
                                      },
                                      nullptr, &made};
  made.stop.reset(aeconn_graceful_stop_new(loop.get(), nullptr, kNoLimit, &settings));
  REQUIRE(made.stop != nullptr);
  if (begins) {
    aeconn_graceful_stop_request(made.stop.get());
  } else {
    const auto free = [](void* self) {
      auto& its = *static_cast<Made*>(self);
      its.stop.reset();
      aeconn_stop(its.loop);
    };
    REQUIRE(aeconn_post(loop.get(), free, &made) == 0);
  }
  std::thread([&] { aeconn_run(loop.get()); }).join();
  CHECK(made.stop == nullptr);
  CHECK(made.begun == (begins ? 1 : 0));
  made.stop.reset(aeconn_graceful_stop_new(loop.get(), nullptr, kNoLimit, &settings));
  CHECK(made.stop != nullptr);  // another may follow; it is freed where it was made
}

TEST_CASE("C stop: a function of its loop asks it while another thread frees it", "[c][stop]") {
  static constexpr int kNone[] = {0};
  const Loop loop(aeconn_loop_new());
  struct Asked {
    aeconn_graceful_stop* stop = nullptr;
    std::atomic<bool> made{false}, inside{false}, freeing{false};
    std::atomic<int> phase{-1};
  } asked;
  std::thread runs([&] {
    const aeconn_stop_settings settings{kNone, nullptr, nullptr, nullptr};
    asked.stop = aeconn_graceful_stop_new(loop.get(), nullptr, kNoLimit, &settings);
    asked.made = true;
    aeconn_run(loop.get());
  });
  testing::await([&] { return asked.made.load(); });
  REQUIRE(asked.stop != nullptr);
  REQUIRE(aeconn_post(
              loop.get(),
              [](void* self) {
                auto& its = *static_cast<Asked*>(self);
                its.inside = true;
                while (!its.freeing) std::this_thread::yield();
                // The phase ends when the other thread has begun to free the stop.
                while (its.phase != AECONN_ENDED)
                  its.phase = aeconn_graceful_stop_get_phase(its.stop);
              },
              &asked) == 0);
  testing::await([&] { return asked.inside.load(); });
  asked.freeing = true;
  aeconn_graceful_stop_free(asked.stop);
  CHECK(asked.phase == AECONN_ENDED);
  aeconn_post(
      loop.get(), [](void* its) { aeconn_stop(static_cast<aeconn_loop*>(its)); }, loop.get());
  runs.join();
}

TEST_CASE("C stop: a child of fork() that frees it changes nothing", "[c][group][stop][fork]") {
  Server server(false, kNoLimit);
  const std::vector<RawSocket> clients = server.connect();
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    server.stop.reset();
    _exit(0);
  }
  int status = -1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  REQUIRE(status == 0);
  REQUIRE(kill(getpid(), SIGTERM) == 0);
  server.run();
  CHECK(server.told == kLoops);
  for (const RawSocket& each : clients) CHECK(each.receive(1).empty());
}
