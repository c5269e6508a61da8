// SPDX-License-Identifier: BSD-3-Clause
// ae::LoopGroup and ae::LoopList: loops on threads, their start and their end.

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ae/loop_group.h"
#include "ae/loop_names.h"
#include "tests/support/any_loop.h"
#include "tests/support/catch.h"

using namespace std::chrono_literals;

namespace {

std::vector<int> processors_of_this_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> all;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return all;  // no CHECK: not thread-safe
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(static_cast<std::size_t>(i), &set)) all.push_back(i);
  return all;
}

std::vector<std::vector<int>> where_they_run(ae::LoopGroup& group) {
  std::vector<std::vector<int>> all(group.size());
  group.on_each([&](ae::EventLoop&, std::size_t i) { all[i] = processors_of_this_thread(); });
  return all;
}

}  // namespace

TEST_CASE("loop group: each loop is on a thread of its own, with its name", "[ae][group]") {
  ae::LoopGroup group({.loops = 3, .name = "a-rather-long-name"});
  REQUIRE(group.size() == 3);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::set<ae::EventLoop*> loops;
  std::vector<std::string> names(3);
  group.on_each([&](ae::EventLoop& loop, std::size_t index) {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
    loops.insert(&loop);
    std::array<char, 16> name{};
    (void)pthread_getname_np(pthread_self(), name.data(), name.size());
    names[index] = name.data();
    CHECK(loop.in_handler());
  });
  CHECK(threads.size() == 3);
  CHECK(threads.count(std::this_thread::get_id()) == 0);
  CHECK(loops.size() == 3);
  CHECK(names == std::vector<std::string>{"a-rather-long-0", "a-rather-long-1", "a-rather-long-2"});
}

TEST_CASE("loops: each name makes loops, and a wrong one is told all", "[ae][group]") {
  REQUIRE(ae::loop_names().size() == 2);
  CHECK(ae::loop_names().front() == "libev");
  for (const std::string_view name : ae::loop_names()) {
    CAPTURE(name);
    CHECK(ae::loops_named(name)(0) != nullptr);
  }
  CHECK_THROWS_WITH(ae::loops_named("select"),
                    "there is no event loop select: libev or epoll is wanted");
}

TEST_CASE("loop group: none is told means one for each processor", "[ae][group]") {
  const ae::LoopGroup group;
  CHECK(group.size() == processors_of_this_thread().size());
}

TEST_CASE("loop group: on_each runs on all at once, and throws what the first threw",
          "[ae][group]") {
  ae::LoopGroup group({.loops = 3});
  std::atomic<int> there{0};
  group.on_each([&](ae::EventLoop&, std::size_t) {
    ++there;
    while (there != 3) std::this_thread::yield();  // ends only if all run at the same time
  });
  std::atomic<int> ran{0};
  const auto fail = [&](ae::EventLoop&, std::size_t index) {
    ++ran;
    if (index != 0) throw std::runtime_error("loop " + std::to_string(index));
  };
  CHECK_THROWS_WITH(group.on_each(fail), "loop 1");
  CHECK(ran == 3);
  group.on_each([&](ae::EventLoop&, std::size_t) { ++ran; });  // all loops still run
  CHECK(ran == 6);
}

TEST_CASE("loop group: what would wait for itself is refused", "[ae][group]") {
  ae::LoopGroup group({.loops = 1});
  group.on_each([&](ae::EventLoop&, std::size_t) {
    CHECK_THROWS_AS(group.on_each([](ae::EventLoop&, std::size_t) {}), ae::LoopError);
    CHECK_THROWS_AS(group.run(), ae::LoopError);
  });
}

TEST_CASE("loop group: a loop that cannot be made ends those that were", "[ae][group]") {
  std::atomic<int> live{0};
  struct Counted final : ae::LoopLocal {
    explicit Counted(std::atomic<int>& its_count) : count(its_count) { ++count; }
    ~Counted() override { --count; }
    std::atomic<int>& count;
  };
  const auto make = [&](std::size_t index) -> std::unique_ptr<ae::EventLoop> {
    if (index == 2) throw std::runtime_error("no third loop");
    auto loop = std::make_unique<testing::AnyLoop>();
    loop->local(&live) = std::make_unique<Counted>(live);
    return loop;
  };
  CHECK_THROWS_WITH(ae::LoopGroup({.loops = 4, .make = make}), "no third loop");
  CHECK(live == 0);
  CHECK_THROWS_AS(ae::LoopGroup({.loops = 1, .make = [](std::size_t) { return nullptr; }}),
                  ae::LoopError);
}

namespace {

// In a process of its own, which ends here: 0 if the group ended its threads and threw the error, 2
// if threads cannot be limited, else 1.
[[noreturn]] void make_more_threads_than_there_may_be() {
  alarm(60);  // ends it if it hangs
  int threads = 0;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "Threads:") status >> threads;
  // Root has no limit; this user id has no other threads, so only these count.
  const auto nobody = static_cast<uid_t>(60'000 + getpid() % 5'000);
  const rlimit two_more{static_cast<rlim_t>(threads) + 2, static_cast<rlim_t>(threads) + 2};
  if (setrlimit(RLIMIT_NPROC, &two_more) != 0 || setresuid(nobody, nobody, nobody) != 0) _exit(2);
  std::atomic<int> made{0}, live{0};
  struct Counted final : ae::LoopLocal {
    explicit Counted(std::atomic<int>& its_count) : count(its_count) { ++count; }
    ~Counted() override { --count; }
    std::atomic<int>& count;
  };
  try {
    const ae::LoopGroup group({.loops = 4, .make = [&](std::size_t) {
                                 auto loop = std::make_unique<testing::AnyLoop>();
                                 loop->local(&live) = std::make_unique<Counted>(live);
                                 ++made;
                                 return loop;
                               }});
    _exit(2);
  } catch (const std::system_error& error) {
    const bool right = error.code() == std::errc::resource_unavailable_try_again;
    // Two, or fewer if a sanitizer has started a thread of its own meanwhile.
    _exit(right && made >= 1 && made < 4 && live == 0 ? 0 : 1);
  } catch (...) {
    _exit(1);
  }
}

}  // namespace

TEST_CASE("loop group: makes more threads than there may be", "[.no-threads]") {
  make_more_threads_than_there_may_be();
}

TEST_CASE("loop group: a thread that cannot be made ends those that were", "[ae][group]") {
  if (geteuid() != 0) {
    WARN("SKIPPED: it takes root to become somebody who has no other thread");
    return;
  }
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    execl(self.c_str(), self.c_str(), "[.no-threads]", static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  INFO("exit " << status);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) {
    WARN("SKIPPED: threads are not limited here");
    return;
  }
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("loop group: stop ends all, run returns then", "[ae][group]") {
  ae::LoopGroup group({.loops = 2});
  auto waited = std::async(std::launch::async, [&] { group.run(); });
  REQUIRE(group.poster(1).post([&] { group.stop(); }));  // also from one of the group's threads
  waited.get();
  CHECK_FALSE(group.poster(0).post([] {}));
  CHECK_THROWS_WITH(group.on_each([](ae::EventLoop&, std::size_t) {}), "loop 0 has ended");
  group.run();  // a second call is harmless
}

TEST_CASE("loop group: a loop's own stop ends that one alone", "[ae][group]") {
  ae::LoopGroup group({.loops = 2});
  group.on_each([&](ae::EventLoop& loop, std::size_t index) {
    if (index == 0) loop.stop();
  });
  while (group.poster(0).post([] {})) std::this_thread::yield();
  int ran = 0;
  CHECK_THROWS_WITH(group.on_each([&](ae::EventLoop&, std::size_t) { ++ran; }), "loop 0 has ended");
  CHECK(ran == 1);
  group.stop();
  group.run();
}

TEST_CASE("loop group: an exception that nobody took ends the group with it", "[ae][group]") {
  ae::LoopGroup group({.loops = 3});
  REQUIRE(group.poster(1).post([] { throw std::runtime_error("a handler's"); }));
  CHECK_THROWS_WITH(group.run(), "a handler's");
  CHECK_FALSE(group.poster(2).post([] {}));
  group.run();  // the exception was reported before
}

TEST_CASE("loop group: nobody is pinned unasked; asked, each to one, near the device",
          "[ae][group]") {
  const std::vector<int> allowed = processors_of_this_thread();
  {
    ae::LoopGroup group({.loops = 2});
    group.set_near(&group, {allowed.back()});
    CHECK(where_they_run(group) == std::vector<std::vector<int>>{allowed, allowed});
  }
  ae::LoopGroup group({.loops = 3, .pin = true});
  const auto each_its_own = [&] {
    std::vector<std::vector<int>> all;
    for (std::size_t i = 0; i < 3; ++i) all.push_back({allowed[i % allowed.size()]});
    return all;
  };
  CHECK(where_they_run(group) == each_its_own());
  const int one = 0, other = 0;
  const std::vector<int> last{allowed.back()};
  group.set_near(&one, last);
  CHECK(where_they_run(group) == std::vector<std::vector<int>>{last, last, last});
  group.set_near(&other, {allowed.front(), 100'000});  // another device: no loop is near to both
  if (allowed.size() > 1) CHECK(where_they_run(group) == each_its_own());
  group.set_near(&other, {});
  CHECK(where_they_run(group) == std::vector<std::vector<int>>{last, last, last});
  group.set_near(&one, {100'000});  // processors that this process may not use
  CHECK(where_they_run(group) == each_its_own());
}

TEST_CASE("loop group: signals are for the program's other threads", "[ae][group]") {
  ae::LoopGroup group({.loops = 1});
  sigset_t theirs, mine;
  group.on_each([&](ae::EventLoop&, std::size_t) {
    REQUIRE(pthread_sigmask(SIG_BLOCK, nullptr, &theirs) == 0);
  });
  REQUIRE(pthread_sigmask(SIG_BLOCK, nullptr, &mine) == 0);
  CHECK(sigismember(&theirs, SIGTERM) == 1);
  CHECK(sigismember(&theirs, SIGSEGV) == 0);
  CHECK(sigismember(&mine, SIGTERM) == 0);
}

TEST_CASE("loop list: loops that the host runs", "[ae][group]") {
  CHECK_THROWS_AS(ae::LoopList({}), ae::LoopError);
  testing::AnyLoop one, two;
  ae::LoopList list({&one, &two});
  std::thread first([&] { one.run(); });
  std::thread second([&] { two.run(); });
  std::array<std::thread::id, 2> ran;
  std::array<ae::EventLoop*, 2> loops{};
  list.on_each([&](ae::EventLoop& loop, std::size_t index) {
    ran.at(index) = std::this_thread::get_id();
    loops.at(index) = &loop;
  });
  CHECK(loops == std::array<ae::EventLoop*, 2>{&one, &two});
  CHECK(ran[0] == first.get_id());
  CHECK(ran[1] == second.get_id());
  list.on_each([](ae::EventLoop& loop, std::size_t) { loop.stop(); });
  first.join();
  second.join();
}
