// SPDX-License-Identifier: BSD-3-Clause
// The C interface in a server with threads of its own: docs/c-threads.md.

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "c/aeconn.h"
#include "tests/support/allocations.h"
#include "tests/support/await.h"
#include "tests/support/c_kit.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

using namespace testing::c;
using testing::Contains;

namespace {

/// A program's own thread, which polls the loop's descriptor, and may be held.
struct Worker {
  Worker() : loop(aeconn_loop_new()), thread([this] { run(); }) {}
  ~Worker() {
    end();
    loop.reset();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  void run() {
    while (!ended) {
      pollfd entry{aeconn_descriptor(loop.get()), POLLIN, 0};
      if (::poll(&entry, 1, 10) < 0 && errno != EINTR) return;
      if (!held) aeconn_dispatch(loop.get());
    }
  }
  void end() {
    ended = true;
    if (thread.joinable()) thread.join();
  }
  std::atomic<bool> ended{false}, held{false};
  Loop loop;
  std::thread thread;
};

struct Server {
  explicit Server(std::size_t count) : workers(count), open(count), conns(count) {
    std::vector<aeconn_loop*> loops;
    loops.reserve(count);
    for (Worker& each : workers) loops.push_back(each.loop.get());
    group.reset(aeconn_group_of(loops.data(), loops.size()));
    INFO(aeconn_error());
    REQUIRE(group != nullptr);
  }
  ~Server() {
    for (Worker& each : workers) each.end();
    for (const auto& all : conns)
      for (aeconn_conn* each : all) aeconn_close(each);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  /// Echoes, and counts by loop.
  static void accept(void* self, aeconn_loop* loop, aeconn_conn* conn) {
    auto* const its = static_cast<Server*>(self);
    const std::size_t index = aeconn_group_index(its->group.get(), loop);
    ++its->open[index];
    if (std::this_thread::get_id() != its->workers[index].thread.get_id()) ++its->wrong;
    its->conns[index].insert(conn);
    aeconn_on_readable(
        conn,
        [](void* all, aeconn_conn* here) {
          std::array<char, 100> buffer;
          const ssize_t n = aeconn_read(here, buffer.data(), buffer.size());
          if (n > 0)
            aeconn_write(here, buffer.data(), static_cast<size_t>(n));
          else if (n == 0 || errno != EAGAIN) {
            static_cast<std::set<aeconn_conn*>*>(all)->erase(here);
            aeconn_close(here);
          }
        },
        &its->conns[index]);
  }
  static std::size_t choose(void* self, const char* peer, const uint64_t* connections,
                            size_t loops) {
    auto* const its = static_cast<Server*>(self);
    if (std::string(peer).empty() || loops != its->workers.size()) ++its->wrong;
    for (std::size_t i = 0; i < loops; ++i) its->wrong += connections[i] > 1000;
    return its->next;
  }
  std::vector<Worker> workers;
  std::vector<std::atomic<int>> open;
  std::vector<std::set<aeconn_conn*>> conns;  // of each worker, used on its thread
  std::atomic<int> wrong{0};
  std::atomic<std::size_t> next{0};
  Group group;
};

void require_echo(aeconn_conn* conn) {
  std::array<char, 5> back;
  REQUIRE(aeconn_write_all(conn, "hello", 5, 60 * kSecond) == 5);
  REQUIRE(aeconn_read_all(conn, back.data(), 5, 60 * kSecond) == 5);
  REQUIRE(std::string_view(back.data(), 5) == "hello");
}

void add(void* to, const char* name, const char* value) {
  (*static_cast<std::map<std::string, std::string>*>(to))[name] = value;
}
void keep(void* to, const char* text, size_t size) {
  static_cast<std::string*>(to)->assign(text, size);
}

}  // namespace

TEST_CASE("C threads: a group of the program's own workers serves one port", "[c][group]") {
  Server server(3);
  CHECK(aeconn_group_size(server.group.get()) == 3);
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(aeconn_group_index(server.group.get(), server.workers[i].loop.get()) == i);
  const Loop mine(aeconn_loop_new());
  CHECK(aeconn_group_index(server.group.get(), mine.get()) == static_cast<std::size_t>(-1));
  CHECK(aeconn_group_index(nullptr, mine.get()) == static_cast<std::size_t>(-1));
  Listener listener(aeconn_group_listen(server.group.get(), "tcp://127.0.0.1:0", AECONN_ROUND_ROBIN,
                                        Server::accept, &server));
  INFO(aeconn_error());
  REQUIRE(listener != nullptr);
  const std::string url = aeconn_listener_url(listener.get(), 0);
  {
    std::vector<Conn> clients;
    for (int i = 0; i < 6; ++i) {
      clients.emplace_back(aeconn_connect_wait(mine.get(), url.c_str(), 60 * kSecond));
      REQUIRE(clients.back() != nullptr);
      require_echo(clients.back().get());
    }
    for (const auto& each : server.open) CHECK(each == 2);
    CHECK(server.wrong == 0);

    std::map<std::string, std::string> facts;
    REQUIRE(aeconn_group_statistics(server.group.get(), 1, "tcp", add, &facts) == 0);
    CHECK(facts["accepted"] == "2");
    CHECK(facts["bytes_read"] == "10");
    REQUIRE(aeconn_group_statistics(server.group.get(), 1, nullptr, add, &facts) == 0);
    CHECK(facts.contains("busy_ns"));
    CHECK(aeconn_group_statistics(server.group.get(), 3, "tcp", add, &facts) == -1);
    CHECK(aeconn_group_statistics(server.group.get(), 0, "smoke", add, &facts) == -1);
    CHECK_THAT(aeconn_error(), Contains("smoke"));
    CHECK(aeconn_group_statistics(nullptr, 0, "tcp", add, &facts) == -1);
    CHECK(aeconn_group_wait(server.group.get()) == -1);
    CHECK_THAT(aeconn_error(), Contains("join these instead"));
  }
  // Paused, the listener leaves arrivals in the backlog.
  aeconn_listener_pause(listener.get());
  std::atomic<int> turns{0};
  for (std::size_t i = 0; i < 3; ++i) {  // what was posted by pause() has run
    aeconn_group_post(
        server.group.get(), i,
        [](void* all, aeconn_loop*) { ++*static_cast<std::atomic<int>*>(all); }, &turns);
  }
  testing::await([&] { return turns == 3; });
  const Conn waits(aeconn_connect(mine.get(), url.c_str(), nullptr, nullptr));
  REQUIRE(waits != nullptr);
  until(mine.get(), [&] { return aeconn_get_state(waits.get()) == AECONN_CONNECTED; });
  std::uint64_t assigned = 0, all = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    REQUIRE(aeconn_listener_share(listener.get(), i, nullptr, &assigned) == 0);
    all += assigned;
  }
  CHECK(all == 6);
  aeconn_listener_resume(listener.get());
  require_echo(waits.get());
}

TEST_CASE("C threads: the program chooses a worker and the connection waits for it", "[c][group]") {
  Server server(2);
  const Listener listener(aeconn_group_listen_by(server.group.get(), "tcp://127.0.0.1:0",
                                                 Server::choose, Server::accept, &server));
  INFO(aeconn_error());
  REQUIRE(listener != nullptr);
  const std::string url = aeconn_listener_url(listener.get(), 0);
  const Loop mine(aeconn_loop_new());
  // Which worker listens: the other is held, and what is chosen for it waits.
  server.next = 1;
  server.workers[1].held = true;
  // It may be inside an iteration still.
  aeconn_group_post(
      server.group.get(), 1, [](void*, aeconn_loop*) {}, nullptr);
  constexpr int kWaiting = 5;
  std::vector<Conn> clients;
  for (int i = 0; i < kWaiting; ++i) {
    clients.emplace_back(aeconn_connect_wait(mine.get(), url.c_str(), 60 * kSecond));
    REQUIRE(clients.back() != nullptr);
  }
  const auto assigned_to = [&](std::size_t index) {
    std::uint64_t assigned = 0;
    (void)aeconn_listener_share(listener.get(), index, nullptr, &assigned);
    return assigned;
  };
  testing::await([&] { return assigned_to(1) == kWaiting; });
  server.next = 0;  // meanwhile the first worker serves
  const Conn other(aeconn_connect_wait(mine.get(), url.c_str(), 60 * kSecond));
  REQUIRE(other != nullptr);
  require_echo(other.get());
  CHECK(assigned_to(0) == 1);
  server.workers[1].held = false;
  for (const Conn& each : clients) require_echo(each.get());
  CHECK(server.open[1] == kWaiting);
  // An index that there is not leaves the choice to the library.
  server.next = 7;
  const Conn any(aeconn_connect_wait(mine.get(), url.c_str(), 60 * kSecond));
  REQUIRE(any != nullptr);
  require_echo(any.get());
  CHECK(assigned_to(0) == 2);
  CHECK(server.wrong == 0);
  CHECK(aeconn_group_listen_by(server.group.get(), url.c_str(), nullptr, Server::accept, nullptr) ==
        nullptr);
}

TEST_CASE("C threads: statistics are asked for on the workers, on all at once", "[c][group]") {
  Server server(3);
  struct Asking {
    Server& server;
    std::atomic<int> done{0}, failed{0};
  } asking{server};
  for (std::size_t i = 0; i < 3; ++i) {
    aeconn_group_post(
        server.group.get(), i,
        [](void* self, aeconn_loop*) {
          auto* const its = static_cast<Asking*>(self);
          for (int times = 0; times < 100; ++times) {
            std::string text;
            std::map<std::string, std::string> facts;
            its->failed += aeconn_group_metrics(its->server.group.get(), keep, &text) != 0;
            its->failed +=
                text.find("aeconn_connections_open{scheme=\"tcp\"} 0") == std::string::npos;
            for (std::size_t of = 0; of < 3; ++of)
              its->failed +=
                  aeconn_group_statistics(its->server.group.get(), of, "unix", add, &facts) != 0;
          }
          ++its->done;
        },
        &asking);
  }
  std::string text;
  for (int times = 0; times < 100; ++times)
    REQUIRE(aeconn_group_metrics(server.group.get(), keep, &text) == 0);
  testing::await([&] { return asking.done == 3; });
  CHECK(asking.failed == 0);
}

TEST_CASE("C threads: workers that have ended and loops that are freed before their listener",
          "[c][group]") {
  Server server(2);
  Listener listener(aeconn_group_listen(server.group.get(), "tcp://127.0.0.1:0", AECONN_FEWEST,
                                        Server::accept, &server));
  REQUIRE(listener != nullptr);
  const std::string url = aeconn_listener_url(listener.get(), 0);
  const Loop mine(aeconn_loop_new());
  const Conn client(aeconn_connect_wait(mine.get(), url.c_str(), 60 * kSecond));
  REQUIRE(client != nullptr);
  for (Worker& each : server.workers) each.end();
  for (Worker& each : server.workers) each.loop.reset();
  std::string text;
  errno = 0;
  CHECK(aeconn_group_metrics(server.group.get(), keep, &text) == -1);
  CHECK(errno == EINVAL);
  CHECK_THAT(aeconn_error(), Contains("has ended"));
  listener.reset();  // does not wait for threads that dispatch no more
  CHECK(aeconn_connect_wait(mine.get(), url.c_str(), 60 * kSecond) == nullptr);
}

TEST_CASE("C threads: stop makes the workers' aeconn_run() return", "[c][group]") {
  const Loop one(aeconn_loop_new()), two(aeconn_loop_new());
  const std::array<aeconn_loop*, 2> both{one.get(), two.get()};
  const Group group(aeconn_group_of(both.data(), both.size()));
  REQUIRE(group != nullptr);
  std::thread first([&] { aeconn_run(one.get()); }), second([&] { aeconn_run(two.get()); });
  aeconn_group_stop(group.get());
  first.join();
  second.join();
  CHECK(aeconn_group_of(nullptr, 1) == nullptr);
  CHECK(aeconn_group_of(both.data(), 0) == nullptr);
  const std::array<aeconn_loop*, 1> none{nullptr};
  CHECK(aeconn_group_of(none.data(), 1) == nullptr);
}

TEST_CASE("C threads: a cancelled thread leaves the library first", "[c]") {
  const Loop loop(aeconn_loop_new());
  std::atomic<bool> inside{false}, go{false}, handled{false};
  struct Its {
    aeconn_loop* loop;
    std::atomic<bool>&inside, &go, &handled;
  } its{loop.get(), inside, go, handled};
  REQUIRE(aeconn_post(
              loop.get(),
              [](void* self) {
                auto* const here = static_cast<Its*>(self);
                here->inside = true;
                while (!here->go) ::usleep(1000);  // where a thread may be cancelled
                here->handled = true;
              },
              &its) == 0);
  pthread_t thread;
  REQUIRE(pthread_create(
              &thread, nullptr,
              [](void* self) -> void* {
                pollfd entry{aeconn_descriptor(static_cast<Its*>(self)->loop), POLLIN, 0};
                for (;;) {
                  if (::poll(&entry, 1, -1) < 0) return nullptr;
                  aeconn_dispatch(static_cast<Its*>(self)->loop);
                }
              },
              &its) == 0);
  testing::await([&] { return inside.load(); });
  REQUIRE(pthread_cancel(thread) == 0);
  go = true;
  void* how = nullptr;
  REQUIRE(pthread_join(thread, &how) == 0);
  CHECK(how == PTHREAD_CANCELED);
  CHECK(handled);
  // The loop is as it was, and another thread goes on with it.
  std::atomic<bool> ran{false};
  REQUIRE(aeconn_post(
              loop.get(), [](void* to) { *static_cast<std::atomic<bool>*>(to) = true; }, &ran) ==
          0);
  until(loop.get(), [&] { return ran.load(); });
}

TEST_CASE("C threads: a cancelled thread ends what it calls in the library", "[c]") {
  const Loop loop(aeconn_loop_new());
  const Listener listener(aeconn_listen(
      loop.get(), "tcp://127.0.0.1:0", [](void*, aeconn_conn* peer) { aeconn_close(peer); },
      nullptr));
  REQUIRE(listener != nullptr);
  struct Its {
    aeconn_loop* loop;
    aeconn_redial* redial;
    std::uint64_t timer;
  } its{loop.get(), nullptr, 0};
  const aeconn_redial_handlers none{};
  its.redial = aeconn_redial_new(loop.get(), aeconn_listener_url(listener.get(), 0), &none, nullptr,
                                 nullptr);
  REQUIRE(its.redial != nullptr);
  until(loop.get(), [&] { return aeconn_redial_connection(its.redial) != nullptr; });
  its.timer = aeconn_timer_start(
      loop.get(), 60 * kSecond, [](void*) { return int64_t{-1}; }, nullptr);
  REQUIRE(its.timer != 0);
  REQUIRE(aeconn_descriptor(loop.get()) >= 0);
  REQUIRE(aeconn_prepare(loop.get()) >= 0);  // from here on a change wakes the loop
  const auto cancelled = [&its](void* (*body)(void*)) {
    pthread_t thread;
    REQUIRE(pthread_create(&thread, nullptr, body, &its) == 0);
    void* how = nullptr;
    REQUIRE(pthread_join(thread, &how) == 0);
    return how == PTHREAD_CANCELED;
  };
  CHECK(cancelled([](void* self) -> void* {
    auto* const here = static_cast<Its*>(self);
    pthread_cancel(pthread_self());
    if (aeconn_timer_again(here->loop, here->timer, kSecond) == 0) here->timer = 0;
    pthread_testcancel();
    return nullptr;
  }));
  CHECK(its.timer == 0);
  CHECK(cancelled([](void* self) -> void* {
    auto* const here = static_cast<Its*>(self);
    pthread_cancel(pthread_self());
    aeconn_redial_free(std::exchange(here->redial, nullptr));
    pthread_testcancel();
    return nullptr;
  }));
  CHECK(its.redial == nullptr);
}

TEST_CASE("C threads: the first failure of a thread without memory is told", "[c][allocation]") {
#if AECONN_COUNTS_ALLOCATIONS
  std::string before = "?", after = "?", later;
  int number = 0, result = 0;
  std::thread([&] {
    {
      const testing::NoMemory none;
      before.assign(aeconn_error());  // it fits without memory of its own
      errno = 0;
      result = aeconn_configure("smoke", "signal=yes");
      number = errno;
      after.assign(aeconn_error());
    }
    aeconn_configure("smoke", "signal=yes");
    later = aeconn_error();
    const testing::NoMemory none;
    aeconn_configure(nullptr, nullptr);
    number += 1000 * static_cast<int>(std::strlen(aeconn_error()));
  }).join();
  CHECK(before.empty());
  CHECK(result == -1);
  CHECK(number == ENOMEM);
  CHECK(after.empty());
  CHECK_THAT(later, Contains("smoke"));
#endif
}

TEST_CASE("C threads: a loop is asked on the thread that dispatches it now", "[c][group]") {
  const Loop loop(aeconn_loop_new());
  aeconn_loop* const loops[] = {loop.get()};
  const Group group(aeconn_group_of(loops, 1));
  REQUIRE(group != nullptr);
  struct Asks {
    aeconn_group* group;
    std::atomic<int> answers{0};
    static void here(void* self) {
      auto* const its = static_cast<Asks*>(self);
      std::map<std::string, std::string> facts;
      its->answers += aeconn_group_statistics(its->group, 0, "tcp", add, &facts) == 0;
      std::string text;
      its->answers += aeconn_group_metrics(its->group, keep, &text) == 0;
    }
  };
  Asks asks{group.get()};
  // On this thread, also between two calls of aeconn_dispatch().
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  REQUIRE(::write(ends[1], "x", 1) == 1);
  struct Once {
    aeconn_loop* loop;
    Asks& asks;
  } once{loop.get(), asks};
  REQUIRE(aeconn_watch(
              loop.get(), ends[0], AECONN_READABLE,
              [](void* self, int fd, int) {
                auto* const its = static_cast<Once*>(self);
                aeconn_unwatch(its->loop, fd, AECONN_READABLE);
                Asks::here(&its->asks);
              },
              &once) == 0);
  while (asks.answers == 0) aeconn_dispatch(loop.get());
  CHECK(asks.answers == 2);
  Asks::here(&asks);
  CHECK(asks.answers == 4);
  // Another thread goes on with the loop, and asks in a handler and between two.
  std::atomic<bool> ended{false};
  std::thread worker([&] {
    aeconn_dispatch(loop.get());
    Asks::here(&asks);
    aeconn_post(loop.get(), Asks::here, &asks);
    while (!ended) aeconn_turn(loop.get(), 1);
  });
  testing::await([&] { return asks.answers == 8; });
  Asks::here(&asks);
  CHECK(asks.answers == 10);
  aeconn_post(
      loop.get(), [](void* flag) { *static_cast<std::atomic<bool>*>(flag) = true; }, &ended);
  worker.join();
  for (const int each : ends) ::close(each);
}

TEST_CASE("C threads: a worker that frees a listener does not wait for the others", "[c][group]") {
  Server server(2);
  struct Ends {
    aeconn_listener* listener;
    std::atomic<bool> freed{false};
  } ends{aeconn_group_listen(server.group.get(), "tcp://127.0.0.1:0", AECONN_ROUND_ROBIN,
                             Server::accept, &server)};
  REQUIRE(ends.listener != nullptr);
  // Worker 1 is inside a handler until the listener has been freed.
  std::atomic<bool> inside{false};
  struct Waits {
    std::atomic<bool>&inside, &freed;
  } waits{inside, ends.freed};
  aeconn_group_post(
      server.group.get(), 1,
      [](void* self, aeconn_loop*) {
        const auto* const its = static_cast<Waits*>(self);
        its->inside = true;
        while (!its->freed) std::this_thread::yield();
      },
      &waits);
  testing::await([&] { return inside.load(); });
  aeconn_group_post(
      server.group.get(), 0,
      [](void* self, aeconn_loop*) {
        auto* const its = static_cast<Ends*>(self);
        aeconn_listener_free(its->listener);
        its->freed = true;
      },
      &ends);
  testing::await([&] { return ends.freed.load(); });
}

TEST_CASE("C threads: who goes on with an ended worker's loop frees its listeners", "[c][group]") {
  Server server(1);
  Listener listener(aeconn_group_listen(server.group.get(), "tcp://127.0.0.1:0", AECONN_FEWEST,
                                        Server::accept, &server));
  REQUIRE(listener != nullptr);
  server.workers[0].end();
  aeconn_dispatch(server.workers[0].loop.get());
  std::string text;
  CHECK(aeconn_group_metrics(server.group.get(), keep, &text) == 0);
  listener.reset();  // returns, although nobody else dispatches the loop
}
