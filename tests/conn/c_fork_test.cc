// SPDX-License-Identifier: BSD-3-Clause
// The C interface in a child of fork(): a loop of the parent that the child goes on with.

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <thread>

#include "c/aeconn.h"
#include "tests/support/c_kit.h"
#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/support/no_descriptors.h"
#include "tests/support/testing.h"

using namespace testing::c;
using testing::Contains;

namespace {

/// Runs the loop as a host does until `*done`; false after ten seconds without an event.
bool host(aeconn_loop* loop, const bool* done) {
  while (!*done) {
    pollfd entry{aeconn_descriptor(loop), POLLIN, 0};
    if (::poll(&entry, 1, 10'000) != 1 || aeconn_dispatch(loop) < 0) return false;
  }
  return true;
}

/// What the child does with the parent's loop; 0 if all is well.
int go_on(aeconn_loop* loop) {
  errno = 0;
  if (aeconn_dispatch(loop) != -1 || errno != ECHILD) return 1;
  if (std::string(aeconn_error()).find("aeconn_after_fork()") == std::string::npos) return 2;
  if (aeconn_prepare(loop) != -1) return 3;
  if (aeconn_after_fork(loop) != 0) return 4;
  struct Served {
    bool done = false;
    Conn conn;
  } served;
  const Listener listener(aeconn_listen(
      loop, "tcp://127.0.0.1:0",
      [](void* self, aeconn_conn* conn) {
        static_cast<Served*>(self)->conn.reset(conn);
        static_cast<Served*>(self)->done = true;
      },
      &served));
  if (listener == nullptr) return 5;
  const Conn client(aeconn_connect(loop, aeconn_listener_url(listener.get(), 0), nullptr, nullptr));
  if (client == nullptr || !host(loop, &served.done)) return 6;
  // Nothing is left to do, so a host that polls sleeps.
  for (int i = 0; i < 100; ++i) {
    pollfd entry{aeconn_descriptor(loop), POLLIN, 0};
    if (::poll(&entry, 1, 0) == 0) return 0;
    if (aeconn_dispatch(loop) < 0) return 7;
  }
  return 8;
}

}  // namespace

TEST_CASE("C: a child of fork() goes on with its parent's loop, or is told what to do",
          "[c][fork]") {
  const Loop loop(aeconn_loop_new());
  REQUIRE(loop != nullptr);
  int accepted = 0;
  const Listener listener(aeconn_listen(
      loop.get(), "tcp://127.0.0.1:0",
      [](void* self, aeconn_conn* conn) {
        ++*static_cast<int*>(self);
        aeconn_close(conn);
      },
      &accepted));
  REQUIRE(listener != nullptr);
  REQUIRE(aeconn_dispatch(loop.get()) >= 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(60);
    ::_exit(go_on(loop.get()));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
  // The parent's own go on.
  const Conn client(
      aeconn_connect(loop.get(), aeconn_listener_url(listener.get(), 0), nullptr, nullptr));
  until(loop.get(), [&] { return accepted == 1; });
}

TEST_CASE("C: a child of fork() that asks for a descriptor leaves its parent's loop alone",
          "[c][fork]") {
  const Loop loop(aeconn_loop_new());
  REQUIRE(loop != nullptr);
  int posts = 0;
  const auto count = [](void* self) { ++*static_cast<int*>(self); };
  REQUIRE(aeconn_post(loop.get(), count, &posts) == 0);
  int told[2], until_end[2];
  REQUIRE(::pipe(told) == 0);
  REQUIRE(::pipe(until_end) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(60);
    ::close(until_end[1]);
    const int err = aeconn_descriptor(loop.get()) == -1 ? errno : 0;
    char end = 0;
    if (::write(told[1], &err, sizeof err) == sizeof err) (void)!::read(until_end[0], &end, 1);
    ::_exit(0);
  }
  int err = 0;
  const bool read = ::read(told[0], &err, sizeof err) == sizeof err;
  // The child still runs. The parent runs what was posted, and then its loop has nothing to do.
  for (int i = 0; i < 5; ++i) CHECK(aeconn_turn(loop.get(), 0) >= 0);
  pollfd entry{aeconn_descriptor(loop.get()), POLLIN, 0};
  const int ready = ::poll(&entry, 1, 0);
  for (const int each : {told[0], told[1], until_end[0], until_end[1]}) ::close(each);
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  REQUIRE(read);
  CHECK(posts == 1);
  CHECK(ready == 0);
  CHECK(err == ECHILD);
}

TEST_CASE("C: a child of fork() whose loop gets no descriptors leaves its parent's alone",
          "[c][fork]") {
  const Loop loop(aeconn_loop_new());
  REQUIRE(loop != nullptr);
  REQUIRE(aeconn_dispatch(loop.get()) >= 0);
  const auto turn = GENERATE(false, true);
  CHECK(testing::forked([&] {
          {
            const testing::NoNewDescriptors none;
            if (turn ? aeconn_turn(loop.get(), 0) != -1 : aeconn_run(loop.get()) != -1) return 1;
            if (errno != EMFILE) return 2;
          }
          if (aeconn_dispatch(loop.get()) != -1 || errno != ECHILD) return 3;
          return aeconn_turn(loop.get(), 0) == -1 || aeconn_dispatch(loop.get()) == -1 ? 4 : 0;
        }) == 0);
}

TEST_CASE("C: a child of fork() frees a graceful stop of its parent's loops", "[c][fork][stop]") {
  // Workers of the program's own: the child has their loops, and not their threads.
  const Loop control(aeconn_loop_new()), first(aeconn_loop_new()), second(aeconn_loop_new());
  aeconn_loop* loops[] = {first.get(), second.get()};
  std::thread workers[] = {std::thread([&] { aeconn_run(loops[0]); }),
                           std::thread([&] { aeconn_run(loops[1]); })};
  {
    const Group group(aeconn_group_of(loops, 2));
    REQUIRE(group != nullptr);
    const int none[] = {0};
    aeconn_stop_settings settings = {};
    settings.signals = none;
    settings.begins = [](void*, aeconn_loop*) {};
    aeconn_graceful_stop* const stop =
        aeconn_graceful_stop_new(control.get(), group.get(), -1, &settings);
    INFO(aeconn_error());
    REQUIRE(stop != nullptr);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::alarm(20);
      aeconn_graceful_stop_free(stop);
      ::_exit(0);
    }
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    CHECK(WIFEXITED(status));
    aeconn_graceful_stop_free(stop);
  }
  for (aeconn_loop* const each : loops)
    aeconn_post(
        each, [](void* self) { aeconn_stop(static_cast<aeconn_loop*>(self)); }, each);
  for (std::thread& each : workers) each.join();
}

TEST_CASE("C: a graceful stop is asked by functions that its end waits for", "[c][stop]") {
  struct Asked {
    aeconn_graceful_stop* stop = nullptr;
    std::atomic<bool> begun{false}, freeing{false};
    std::atomic<int> phase{-1};
  } asked;
  const Group group(aeconn_group_new(2, "c-stop", 0));
  REQUIRE(group != nullptr);
  const int none[] = {0};
  aeconn_stop_settings settings = {};
  settings.signals = none;
  settings.context = &asked;
  settings.begins = [](void* self, aeconn_loop*) {
    auto& its = *static_cast<Asked*>(self);
    its.begun = true;
    while (!its.freeing) std::this_thread::yield();
    for (int i = 0; i < 1000; ++i) its.phase = aeconn_graceful_stop_get_phase(its.stop);
  };
  asked.stop = aeconn_graceful_stop_new(nullptr, group.get(), -1, &settings);
  REQUIRE(asked.stop != nullptr);
  aeconn_graceful_stop_request(asked.stop);
  while (!asked.begun) std::this_thread::yield();
  asked.freeing = true;
  aeconn_graceful_stop_free(asked.stop);
  REQUIRE(asked.phase != -1);
}
