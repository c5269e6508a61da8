// SPDX-License-Identifier: BSD-3-Clause
// fork() while other threads run, and what a child may do with inherited loops.

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "ae/core/fork.h"
#include "ae/epoll_loop.h"
#include "ae/libev_loop.h"
#include "ae/loop_group.h"
#include "ae/once.h"
#include "tests/support/catch.h"
#include "tests/support/loop_kit.h"

using namespace loop_kit;

namespace {

/// Runs `body` in a child for at most twenty seconds; returns its exit status, or minus the signal.
template <class Body>
int in_child(const Body& body) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(20);
    int status = 99;
    try {
      status = body();
    } catch (...) {
    }
    ::_exit(status);
  }
  int status = 0;
  pid_t got;
  do {
    got = ::waitpid(child, &status, 0);
  } while (got < 0 && errno == EINTR);
  REQUIRE(got == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// Threads that call `body` continuously.
class Busy {
 public:
  template <class Body>
  Busy(int count, const Body& body) {
    for (int i = 0; i < count; ++i)
      threads_.emplace_back([this, body] {
        while (!stop_) body();
      });
  }
  ~Busy() {
    stop_ = true;
    for (std::thread& each : threads_) each.join();
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

template <class Loop>
void fork_beside_posts() {
  Loop loop;
  const ae::Poster poster = loop.poster();
  std::atomic<int> waiting{0};
  const Busy busy(2, [&] {
    if (waiting > 1000) return std::this_thread::yield();
    ++waiting;
    (void)poster.post([&] { --waiting; });
  });
  for (int i = 0; i < 150; ++i) {
    const bool drops = i % 3 == 0;
    REQUIRE(in_child([&] {
              if (drops) {
                std::destroy_at(&loop);
                return poster.post([] {}) ? 1 : 0;
              }
              loop.after_fork();
              bool ran = false;
              if (!poster.post([&] { ran = true; })) return 2;
              while (!ran) loop.process_events(ae::kFullIteration);
              return 0;
            }) == 0);
    loop.process_events(ae::kFullIteration | ae::kDontWait);
  }
}

std::atomic<bool> making{false}, held{false};

/// An object that is made when it is first used. While `held` is set, making it does not end.
int& made_slowly() {
  return ae::once([] {
    making = true;
    while (held) std::this_thread::yield();
    return 7;
  });
}

/// Counts its objects. It can be neither copied nor moved, as an object with a mutex.
struct Counted {
  Counted() { ++count; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { --count; }
  static inline std::atomic<int> count{0};
};

}  // namespace

TEST_CASE("fork: beside threads that post without a pause no child hangs", "[ae][fork]") {
  SECTION("libev") { fork_beside_posts<ae::LibevLoop>(); }
  SECTION("epoll") { fork_beside_posts<ae::EpollLoop>(); }
}

TEST_CASE("fork: mutexes that threads take in any order are free in a child", "[ae][fork]") {
  // Some are locked within others, some are created and destroyed meanwhile.
  ae::Mutex one, two, three;
  int guarded = 0;
  std::atomic<unsigned> turn{0};
  const Busy busy(3, [&] {
    const unsigned which = turn++ % 3;
    ae::Mutex& outer = which == 0 ? one : which == 1 ? two : three;
    const std::lock_guard lock(outer);
    ae::Mutex fresh;
    const std::lock_guard inner(fresh);
    if (which == 0) {
      const std::lock_guard most(two);
      ++guarded;
      ++guarded;
    }
  });
  for (int i = 0; i < 150; ++i)
    REQUIRE(in_child([&] {
              for (ae::Mutex* each : {&one, &two, &three}) {
                if (!each->try_lock()) return 1;
                each->unlock();
              }
              const std::lock_guard first(one);
              const std::lock_guard second(two);
              return guarded % 2 == 0 ? 0 : 2;  // the guarded state is consistent
            }) == 0);
}

TEST_CASE("fork: a thread that forks with one of our mutexes held goes on, and so does its child",
          "[ae][fork]") {
  ae::Mutex held, other;
  const std::lock_guard lock(held);
  REQUIRE(in_child([&] {
            if (held.try_lock() || !other.try_lock()) return 1;
            held.unlock();
            held.lock();
            return 0;
          }) == 0);
  REQUIRE(other.try_lock());
  other.unlock();
}

TEST_CASE("fork: what was posted to a loop before is for the parent to run, once", "[ae][fork]") {
  const std::string child_does = GENERATE("drops it", "goes on", "posts first");
  CAPTURE(child_does);
  AnyLoop loop;
  int ran = 0, own = 0;
  loop.post([&] { ++ran; });
  REQUIRE(in_child([&] {
            if (child_does == "posts first") loop.post([&] { ++own; });
            if (child_does == "goes on") loop.after_fork();
            if (child_does == "goes on") loop.post([&] { ++own; });
            if (child_does != "drops it")
              while (own == 0) loop.process_events(ae::kFullIteration);
            std::destroy_at(&loop);
            return ran;
          }) == 0);
  loop.process_events(ae::kFullIteration | ae::kDontWait);
  CHECK(ran == 1);
}

TEST_CASE("fork: what was posted before it runs in no grandchild either", "[ae][fork]") {
  const std::string grandchild_does = GENERATE("drops it", "posts first");
  CAPTURE(grandchild_does);
  AnyLoop loop;
  int ran = 0, of_child = 0, own = 0;
  loop.post([&] { ++ran; });
  REQUIRE(in_child([&] {
            loop.post([&] { ++of_child; });
            while (of_child == 0) loop.process_events(ae::kFullIteration);
            loop.post([&] { ++of_child; });  // waits at the second fork()
            const int status = in_child([&] {
              if (grandchild_does == "posts first") {
                loop.post([&] { ++own; });
                while (own == 0) loop.process_events(ae::kFullIteration);
              }
              std::destroy_at(&loop);
              return ran + of_child - 1;
            });
            if (status != 0) return status;
            while (of_child == 1) loop.process_events(ae::kFullIteration);
            return ran;
          }) == 0);
  loop.process_events(ae::kFullIteration | ae::kDontWait);
  CHECK(ran == 1);
}

TEST_CASE("fork: a loop that a child runs without a word is its own", "[ae][fork]") {
  AnyLoop loop;
  Sockets sockets;
  int reads = 0;
  loop.add_file_event(sockets.near, ae::kReadable, [&](int fd, ae::Mask) {
    ++reads;
    take_byte(fd);
  });
  loop.process_events(ae::kFullIteration | ae::kDontWait);
  REQUIRE(in_child([&] {
            loop.remove_file_event(sockets.near, ae::kReadable);
            bool fired = false;
            loop.add_time_event(1ms, [&] { return fired = true, ae::kNoMore; });
            while (!fired) loop.process_events(ae::kFullIteration);
            return 0;
          }) == 0);
  write_byte(sockets.far);
  while (reads == 0) loop.process_events(ae::kFullIteration);
  CHECK(reads == 1);
}

TEST_CASE("fork: a file that the child has closed ends, whoever gets its number", "[ae][fork]") {
  const bool waits = GENERATE(true, false);  // whether the kernel knows of the file before fork()
  const ae::Mask trust = GENERATE(ae::kNone, ae::kTrusted);
  AnyLoop loop;
  Sockets sockets;
  int calls = 0;
  loop.add_file_event(sockets.near, ae::kReadable | trust, [&](int, ae::Mask) { ++calls; });
  if (waits) loop.process_events(ae::kFullIteration | ae::kDontWait);
  REQUIRE(in_child([&] {
            ::close(sockets.near);
            loop.after_fork();  // opens descriptors, one of which may get the number
            for (int i = 0; i < 3; ++i) {
              bool posted = false;
              std::thread([&] { loop.post([&] { posted = true; }); }).join();
              while (!posted) loop.process_events(ae::kFullIteration);
            }
            if (loop.file_events(sockets.near) != ae::kNone) return 2;
            return calls == 1 ? 0 : 10 + calls;
          }) == 0);
  write_byte(sockets.far);
  while (calls == 0) loop.process_events(ae::kFullIteration);
}

TEST_CASE("fork: of a file that the child has closed a handler that stays ends, too",
          "[ae][fork]") {
  AnyLoop loop;
  Sockets sockets;
  int reads = 0, writes = 0;
  loop.add_file_event(sockets.near, ae::kReadable, [&](int fd, ae::Mask) {
    ++reads;
    loop.remove_file_event(fd, ae::kReadable);
  });
  loop.add_file_event(sockets.near, ae::kWritable, [&](int, ae::Mask) { ++writes; });
  REQUIRE(in_child([&] {
            ::close(sockets.near);
            loop.after_fork();  // opens descriptors, one of which may get the number
            for (int i = 0; i < 5; ++i) loop.process_events(ae::kFullIteration | ae::kDontWait);
            if (loop.file_events(sockets.near) != ae::kNone) return 2;
            return reads == 1 && writes <= 2 ? 0 : 3;
          }) == 0);
}

TEST_CASE("fork: a new file is served under the number of one that the child has closed",
          "[ae][fork]") {
  const ae::Mask before = GENERATE(ae::kReadable, ae::kWritable, ae::kReadable | ae::kWritable);
  AnyLoop loop;
  Sockets sockets;
  // Higher than what the child's loop opens for itself.
  const int watched = ::fcntl(sockets.near, F_DUPFD_CLOEXEC, 100);
  REQUIRE(watched >= 100);
  int old_calls = 0;
  loop.add_file_event(watched, before, [&](int, ae::Mask) { ++old_calls; });
  REQUIRE(in_child([&] {
            Sockets others;
            ::close(watched);
            loop.after_fork();
            if (::dup2(others.near, watched) != watched) return 2;
            int calls = 0;
            loop.add_file_event(watched, ae::kReadable, [&](int fd, ae::Mask) {
              ++calls;
              take_byte(fd);
            });
            loop.process_events(ae::kFullIteration | ae::kDontWait);
            if (calls != 0) return 3;
            write_byte(others.far);
            while (calls == 0) loop.process_events(ae::kFullIteration);
            if (old_calls != 0) return 4;
            return loop.file_events(watched) == ae::kReadable ? 0 : 5;
          }) == 0);
  ::close(watched);
}

TEST_CASE("fork: what a child takes off a hosted loop stays with its parent's", "[ae][fork]") {
  ae::EpollLoop loop;
  Sockets sockets;
  const int descriptor = loop.descriptor();
  int reads = 0, fired = 0;
  loop.add_file_event(sockets.near, ae::kReadable, [&](int fd, ae::Mask) {
    ++reads;
    take_byte(fd);
  });
  const ae::TimerId timer = loop.add_time_event(1h, [&] { return ++fired, ae::kNoMore; });
  loop.dispatch();
  REQUIRE(in_child([&] {
            loop.remove_file_event(sockets.near, ae::kReadable);
            loop.remove_time_event(timer);
            loop.add_time_event(0ms, [] { return ae::kNoMore; });
            loop.post([] {});
            std::destroy_at(&loop);
            return 0;
          }) == 0);
  pollfd entry{descriptor, POLLIN, 0};
  CHECK(::poll(&entry, 1, 0) == 0);
  write_byte(sockets.far);
  REQUIRE(::poll(&entry, 1, 10000) == 1);
  loop.dispatch();
  CHECK(reads == 1);
  CHECK(fired == 0);
}

TEST_CASE("fork: a child asks its own loops though the parent waited for an answer",
          "[ae][fork][group]") {
  ae::LoopGroup group({.loops = 1});
  std::atomic<bool> go_on{false}, busy{false};
  group.poster(0).post([&] {
    busy = true;
    while (!go_on) std::this_thread::yield();
  });
  while (!busy) std::this_thread::yield();
  std::atomic<bool> begun{false};
  std::thread asker([&] {
    begun = true;
    group.ask(0, [](ae::EventLoop&) {});
  });
  // Soon it waits: the first children may find it before that.
  while (!begun) std::this_thread::yield();
  int failed = 0;
  for (int i = 0; i < 20; ++i) {
    failed += in_child([] {
                ae::LoopGroup own({.loops = 1});
                for (int turn = 0; turn < 8; ++turn) {
                  std::atomic<bool> held{false};
                  own.poster(0).post([&] {
                    held = true;
                    std::this_thread::yield();
                  });
                  own.ask(0, [](ae::EventLoop&) {});
                  if (!held) return 1;
                }
                return 0;
              }) != 0;
    std::this_thread::yield();
  }
  go_on = true;
  asker.join();
  REQUIRE(failed == 0);
}

TEST_CASE("fork: a child makes what another thread of its parent is about to make", "[ae][fork]") {
  held = true;
  std::thread first([] { made_slowly(); });
  while (!making) std::this_thread::yield();
  const int status = in_child([] {
    held = false;
    return made_slowly() == 7 ? 0 : 1;
  });
  held = false;
  first.join();
  CHECK(status == 0);
  CHECK(&made_slowly() == &made_slowly());
}

TEST_CASE("once: threads that make an object at the same time get the same one", "[ae][fork]") {
  static std::atomic<int> inside{0};
  static std::atomic<bool> refuses{true};
  constexpr int kThreads = 4;
  const auto get = []() -> Counted& {
    return ae::once([] {
      if (refuses) throw std::bad_alloc();
      ++inside;
      while (inside < kThreads) std::this_thread::yield();
      return Counted();
    });
  };
  CHECK_THROWS_AS(get(), std::bad_alloc);
  refuses = false;
  std::array<Counted*, kThreads> got{};
  std::vector<std::thread> threads;
  for (Counted*& each : got) threads.emplace_back([&] { each = &get(); });
  for (std::thread& each : threads) each.join();
  for (Counted* const each : got) CHECK(each == got.front());
  CHECK(Counted::count == 1);
  CHECK(inside == kThreads);  // the next calls make none
  CHECK(&get() == got.front());
}

TEST_CASE("fork: a group of loops ends in a child without its threads", "[ae][fork][group]") {
  auto group = std::make_unique<ae::LoopGroup>(ae::LoopGroup::Config{.loops = 2});
  const Busy busy(1, [&] { group->on_each([](ae::EventLoop&, std::size_t) {}); });
  for (int i = 0; i < 20; ++i)
    REQUIRE(in_child([&] {
              try {
                group->on_each([](ae::EventLoop&, std::size_t) {});
                return 1;
              } catch (const ae::LoopError& error) {
                if (std::string(error.what()).find("fork") == std::string::npos) return 2;
              }
              try {
                group->run();
                return 3;
              } catch (const ae::LoopError&) {
              }
              group->stop();
              group->set_near(&group, {0});
              group.reset();
              return 0;
            }) == 0);
  group->on_each([](ae::EventLoop&, std::size_t) {});
}
