// SPDX-License-Identifier: BSD-3-Clause
// Loops::ask_each(): from any thread, also from those of the loops, which ask each other.

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "ae/epoll_loop.h"
#include "ae/loop_group.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

namespace {

/// Waits for other threads.
template <class Condition>
void await(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + testing::patience();
  while (!condition()) {
    REQUIRE(std::chrono::steady_clock::now() < end);
    std::this_thread::yield();
  }
}

/// Asks `loops` from the thread of loop `index` of `group`; returns the sum of what they answer.
void ask_from(ae::LoopGroup& group, std::size_t index, ae::Loops& loops, int times,
              std::atomic<int>& rounds, std::atomic<int>& wrong) {
  group.poster(index).post([&, times] {
    for (int i = 0; i < times; ++i) {
      std::vector<ae::EventLoop*> seen(loops.size());
      loops.ask_each([&](ae::EventLoop& loop, std::size_t at) {
        // On the thread of that loop, whoever asks.
        if (loops.thread(at) != std::this_thread::get_id()) ++wrong;
        seen[at] = &loop;
      });
      for (std::size_t at = 0; at < loops.size(); ++at) wrong += seen[at] != loops.loop(at);
      ++rounds;
    }
  });
}

}  // namespace

TEST_CASE("loops: ask_each() runs once on each loop's thread, and may be called on any",
          "[loop][group]") {
  ae::LoopGroup group({.loops = 3});
  std::atomic<int> rounds{0}, wrong{0};
  constexpr int kTimes = 200;
  // All loops ask all loops at once, and so does this thread.
  for (std::size_t i = 0; i < group.size(); ++i) ask_from(group, i, group, kTimes, rounds, wrong);
  for (int i = 0; i < kTimes; ++i) {
    std::atomic<int> answers{0};
    group.ask_each([&](ae::EventLoop&, std::size_t) { ++answers; });
    REQUIRE(answers == 3);
  }
  await([&] { return rounds == 3 * kTimes; });
  CHECK(wrong == 0);
}

TEST_CASE("loops: two groups that ask each other answer while they wait", "[loop][group]") {
  ae::LoopGroup one({.loops = 2}), other({.loops = 2});
  std::atomic<int> rounds{0}, wrong{0};
  constexpr int kTimes = 200;
  for (std::size_t i = 0; i < 2; ++i) {
    ask_from(one, i, other, kTimes, rounds, wrong);
    ask_from(other, i, one, kTimes, rounds, wrong);
  }
  await([&] { return rounds == 4 * kTimes; });
  CHECK(wrong == 0);
}

TEST_CASE("loops: ask() asks one loop, and what it throws reaches the caller", "[loop][group]") {
  ae::LoopGroup group({.loops = 2});
  ae::EventLoop* seen = nullptr;
  group.ask(1, [&](ae::EventLoop& loop) { seen = &loop; });
  CHECK(seen == group.loop(1));
  CHECK_THROWS_AS(group.ask(0, [](ae::EventLoop&) { throw std::runtime_error("no"); }),
                  std::runtime_error);
  std::atomic<int> caught{0};
  group.poster(0).post([&] {
    try {
      group.ask_each([](ae::EventLoop&, std::size_t) { throw std::runtime_error("no"); });
    } catch (const std::runtime_error&) {
      ++caught;
    }
  });
  await([&] { return caught == 1; });
}

TEST_CASE("loops: a loop that has ended is an error, and the others are asked", "[loop][group]") {
  ae::LoopGroup group({.loops = 3});
  group.poster(1).post([&] { group.loop(1)->stop(); });
  await([&] { return !group.poster(1).open(); });
  std::atomic<int> answers{0};
  CHECK_THROWS_AS(group.ask_each([&](ae::EventLoop&, std::size_t) { ++answers; }), ae::LoopError);
  CHECK(answers == 2);
  CHECK_THROWS_AS(group.ask(1, [](ae::EventLoop&) {}), ae::LoopError);
}

TEST_CASE("loops: loops of the program's own threads ask each other", "[loop][group]") {
  std::vector<std::unique_ptr<ae::EpollLoop>> all;
  for (int i = 0; i < 2; ++i) all.push_back(std::make_unique<ae::EpollLoop>());
  ae::LoopList list({all[0].get(), all[1].get()});
  CHECK(list.thread(0) == std::thread::id());  // it has not run yet
  std::vector<std::thread> threads;
  threads.reserve(2);
  for (auto& loop : all) threads.emplace_back([&loop] { loop->run(); });
  std::atomic<int> done{0}, answers{0};
  list.ask_each([](ae::EventLoop&, std::size_t) {});
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(list.thread(i) == threads[i].get_id());
    list.poster(i).post([&] {
      for (int times = 0; times < 200; ++times)
        list.ask_each([&](ae::EventLoop&, std::size_t) { ++answers; });
      ++done;
    });
  }
  await([&] { return done == 2; });
  CHECK(answers == 800);
  for (std::size_t i = 0; i < 2; ++i) list.poster(i).post([loop = all[i].get()] { loop->stop(); });
  for (std::thread& each : threads) each.join();
  // Destroyed by this thread, and asked by it: an error, and no use of what is gone.
  all.clear();
  CHECK_THROWS_AS(list.ask_each([](ae::EventLoop&, std::size_t) {}), ae::LoopError);
}

TEST_CASE("loops: a loop that waits for answers runs no handler of its own", "[loop][group]") {
  ae::LoopGroup group({.loops = 2});
  std::atomic<bool> go{false}, asking{false}, asked{false}, ran{false}, early{false};
  group.poster(1).post([&] {
    while (!go) std::this_thread::yield();  // loop 1 is busy
  });
  group.poster(0).post([&] {
    asking = true;
    group.ask(1, [](ae::EventLoop&) {});
    asked = true;
  });
  await([&] { return asking.load(); });
  group.poster(0).post([&] {
    early = !asked;
    ran = true;
  });
  // What another thread asks of loop 0 is answered meanwhile.
  std::atomic<int> answers{0};
  group.ask(0, [&](ae::EventLoop&) { ++answers; });
  CHECK(answers == 1);
  go = true;
  await([&] { return ran.load(); });
  CHECK_FALSE(early);
}
