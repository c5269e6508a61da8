// SPDX-License-Identifier: BSD-3-Clause
// Tests of event_loop.h: lifetimes, limits, fork.

#include "tests/support/any_loop.h"

#include <ev.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/loop_kit.h"

using namespace loop_kit;

// --- lifetime ------------------------------------------------------------------------------------

TEST_CASE("event loop: a deferred object dies when no handler is on the stack", "[ae][lifetime]") {
  AnyLoop loop;
  Sockets s;
  s.send();
  std::string journal;
  loop.add_file_event(s.near, kReadable, [&](int fd, Mask) {
    take_byte(fd);
    loop.destroy_later(thing([&] {
      journal += loop.in_handler() ? "in handler! " : "first ";
      loop.destroy_later(thing([&] { journal += "from-dtor "; }));
    }));
    loop.destroy_later(thing([&] { journal += "second "; }));
    loop.destroy_later(nullptr);
    journal += "handler ";
  });
  loop.process_events(kPoll);
  CHECK(journal == "handler ");
  loop.process_events(kFullIteration);  // no sleep: the destructor deferred an object
  CHECK(journal == "handler first second ");
  loop.process_events(kFullIteration | kDontWait);
  CHECK(journal == "handler first second from-dtor ");
}

TEST_CASE("event loop: it does not sleep on objects that hooks and sources deferred",
          "[ae][lifetime]") {
  AnyLoop loop;
  bool dead = false;
  bool done = false;
  loop.add_before_sleep([&] {
    if (!std::exchange(done, true)) loop.destroy_later(thing([&] { dead = true; }));
  });
  loop.process_events(kFullIteration);  // returns, since there is work
  CHECK_FALSE(dead);
  loop.process_events(kPoll);
  CHECK(dead);
}

TEST_CASE("event loop: what hooks defer goes before the sleep, without a turn of its own",
          "[ae][lifetime]") {
  AnyLoop loop;
  std::string journal;
  int turns = 0;
  loop.add_after_sleep([&] { ++turns; });
  loop.add_time_event(ae::Duration::zero(), [&] {
    journal += "timer ";
    return ae::kNoMore;
  });
  loop.add_before_sleep([&] {
    if (journal == "timer ") {
      loop.destroy_later(thing([&, from = turns] {
        journal += loop.in_handler() ? "in handler! " : "gone ";
        journal += turns == from ? "in the same turn" : "later";
      }));
      journal += "hook ";
      loop.add_time_event(ae::Duration::zero(), [&] {
        loop.stop();
        return ae::kNoMore;
      });
    }
  });
  loop.run();
  CHECK(journal == "timer hook gone in the same turn");
}

TEST_CASE("event loop: with it die loop locals, newest first, and everything deferred",
          "[ae][lifetime]") {
  std::string journal;
  const int key_a = 0;
  const int key_b = 0;
  std::optional<AnyLoop> owner(std::in_place);
  AnyLoop* const loop = &*owner;  // valid during destruction, when the optional is already empty
  Sockets s;
  TestSource source(nullptr);
  auto& a = loop->local(&key_a);
  CHECK(a == nullptr);
  a = std::make_unique<LocalThing>([&] {
    journal += "a ";
    loop->destroy_later(thing([&] {
      journal += "deferred-late ";
      loop->destroy_later(thing([&] { journal += "deferred-last "; }));
    }));
  });
  const auto timer = loop->add_time_event(1h, [] { return kNoMore; });
  loop->add_file_event(s.near, kReadable, [](int, Mask) {});
  loop->add_source(source);
  loop->local(&key_b) = std::make_unique<LocalThing>([&] {
    journal += "b ";
    CHECK(loop->remove_time_event(timer));
    loop->remove_file_event(s.near, kReadable);
    loop->remove_source(source);
    CHECK(loop->local(&key_a) != nullptr);
  });
  for (int i = 0; i < 100; ++i) loop->local(&journal + i);  // references remain valid
  CHECK(&a == &loop->local(&key_a));
  loop->destroy_later(thing([&] { journal += "deferred "; }));
  loop->post([&] { journal += "post "; });
  owner.reset();
  CHECK(journal == "post b a deferred deferred-late deferred-last ");
}

TEST_CASE("event loop: it may die with events, timers and hooks whose handlers own things",
          "[ae][lifetime]") {
  std::optional<AnyLoop> owner(std::in_place);
  AnyLoop* const loop = &*owner;  // valid during destruction, when the optional is already empty
  Sockets s;
  // Each removes its own registration and defers an object when it is destroyed.
  struct Owner {
    std::function<void()> dying;
    ~Owner() { dying(); }
  };
  int dead = 0;
  int destroyed = 0;
  const auto nothing = [] {};
  auto file = std::make_shared<Owner>(Owner{nothing});
  file->dying = [&] {
    ++dead;
    loop->remove_file_event(s.near, kReadable | kWritable);
    loop->destroy_later(thing([&] { ++destroyed; }));
  };
  loop->add_file_event(s.near, kReadable, [file](int, Mask) {});
  file.reset();
  auto timer = std::make_shared<Owner>(Owner{nothing});
  const auto id = loop->add_time_event(1h, [timer] { return kNoMore; });
  timer->dying = [&, id] {
    ++dead;
    CHECK_FALSE(loop->remove_time_event(id));
    loop->destroy_later(thing([&] { ++destroyed; }));
  };
  timer.reset();
  auto hook = std::make_shared<Owner>(Owner{nothing});
  const auto hook_id = loop->add_before_sleep([hook] {});
  hook->dying = [&, hook_id] {
    ++dead;
    loop->remove_hook(hook_id);
    loop->destroy_later(thing([&] { ++destroyed; }));
  };
  hook.reset();
  loop->add_time_event(0ms, [] { return kNoMore; });
  loop->process_events(kFileEvents | kDontWait);  // due, but not run
  owner.reset();
  CHECK(dead == 3);
  CHECK(destroyed == 3);
}

TEST_CASE("event loop: now() stands still inside an iteration and never goes back", "[ae]") {
  AnyLoop loop;
  std::vector<ae::TimePoint> seen;
  loop.add_time_event(0ms, [&]() -> ae::Duration {
    const auto first = loop.now();
    const auto until = steady_clock::now() + 1ms;
    while (steady_clock::now() < until) {
    }
    CHECK(loop.now() == first);
    seen.push_back(first);
    return seen.size() < 3 ? ae::Duration::zero() : kNoMore;
  });
  const auto before = loop.now();
  REQUIRE(runs_until(loop, [&] { return seen.size() == 3; }));
  seen.insert(seen.begin(), before);
  seen.push_back(loop.now());
  for (std::size_t i = 1; i < seen.size(); ++i) CHECK(seen[i] > seen[i - 1]);
}

TEST_CASE("event loop: a handler's now() is of after the sleep, whoever asked before it", "[ae]") {
  AnyLoop loop;
  ae::TimePoint before;
  ae::TimePoint after;
  loop.add_before_sleep([&] { before = loop.now(); });
  loop.add_time_event(5ms, [&] { return after = loop.now(), kNoMore; });
  const auto start = steady_clock::now();
  while (after == ae::TimePoint()) loop.process_events(kFullIteration);
  CHECK(after - start >= 5ms);
  CHECK(after > before);
}

TEST_CASE("event loop: in_handler() is true in handlers, hooks and sources, and nowhere else",
          "[ae]") {
  AnyLoop loop;
  Sockets s;
  s.send();
  int inside = 0;
  const auto look = [&] { inside += loop.in_handler() ? 1 : 0; };
  TestSource source(nullptr);
  source.on_process = look;
  loop.add_source(source);
  loop.add_file_event(s.near, kReadable, [&](int, Mask) { look(); });
  loop.add_time_event(0ms, [&] { return look(), kNoMore; });
  loop.add_before_sleep(look);
  loop.add_after_sleep(look);
  loop.post(look);
  CHECK_FALSE(loop.in_handler());
  loop.process_events(kPoll);
  CHECK_FALSE(loop.in_handler());
  CHECK(inside == 6);
}

// --- limits and faults ---------------------------------------------------------------------------

TEST_CASE("event loop: libev's environment variables do not reach it", "[ae][hostile]") {
  if (testing::chosen_loop() != testing::LoopKind::kLibev) return;
  ::setenv("LIBEV_FLAGS", "1", 1);  // select
  AnyLoop loop;
  ::unsetenv("LIBEV_FLAGS");
  CHECK(ev_backend(loop.native()) == (ev_recommended_backends() & EVBACKEND_EPOLL));
}

namespace {

/// Number of descriptors watched by a process's epoll instances.
std::size_t watched_descriptors(pid_t process) {
  std::size_t count = 0;
  const std::string folder = "/proc/" + std::to_string(process) + "/fdinfo";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream info(entry.path());
    for (std::string line; std::getline(info, line);) count += line.starts_with("tfd:") ? 1 : 0;
  }
  return count;
}

}  // namespace

TEST_CASE("event loop: after fork() the child has a loop of its own, and the parent its old one",
          "[ae]") {
  AnyLoop loop;
  Sockets s;
  Sockets kept;
  int reads = 0;
  loop.add_file_event(s.near, kReadable, [&](int fd, Mask) {
    ++reads;
    take_byte(fd);
  });
  loop.add_file_event(kept.near, kReadable, [&](int fd, Mask) {
    reads += 10;
    take_byte(fd);
  });
  turns(loop, 1);
  const bool reuse = GENERATE(true, false);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    bool fine = true;
    if (reuse) {
      const auto of_parent = watched_descriptors(::getppid());
      loop.after_fork();
      loop.remove_file_event(s.near, kReadable);
      Sockets own;
      loop.add_file_event(own.near, kReadable, [](int, Mask) {});
      int posted = 0;
      loop.post([&] { ++posted; });
      write_byte(kept.far);
      fine = runs_until(loop, [&] { return reads == 10 && posted == 1; }) &&
             watched_descriptors(::getppid()) == of_parent && of_parent != 0;
    } else {
      loop.~AnyLoop();
      new (&loop) AnyLoop();
      loop.add_file_event(kept.near, kReadable, [&](int, Mask) { loop.stop(); });
      write_byte(kept.far);
      loop.run();
      take_byte(kept.near);
    }
    ::_exit(fine ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  s.send();
  kept.send();
  REQUIRE(runs_until(loop, [&] { return reads == 11; }));
}

TEST_CASE("event loop: a descriptor that the child closed after fork() does no harm there",
          "[ae][hostile]") {
  AnyLoop loop;
  Sockets s;
  loop.add_file_event(s.near, kReadable | GENERATE(ae::kNone, ae::kTrusted), [](int, Mask) {});
  turns(loop, 1);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::close(s.near);
    loop.after_fork();
    turns(loop, 3);
    ::_exit(loop.file_events(s.near) == ae::kNone ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
