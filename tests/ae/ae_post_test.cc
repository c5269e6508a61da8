// SPDX-License-Identifier: BSD-3-Clause
// post() and Poster: what other threads may do with a loop while it exists, ends, and after its
// end.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/any_loop.h"
#include "tests/support/catch.h"
#include "tests/support/loop_kit.h"

using namespace loop_kit;

namespace {

constexpr std::size_t kThreads = 4;

/// The posts of each thread that have run; written on the loop's thread only.
struct Ledger {
  void ran(std::size_t thread, std::uint32_t number) {
    in_order = in_order && next[thread] == number;
    next[thread] = number + 1;
    ++total;
  }
  std::array<std::uint32_t, kThreads> next{};
  std::uint64_t total = 0;
  bool in_order = true;
};

std::vector<std::thread> start_threads(const std::function<void(std::size_t)>& body) {
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) threads.emplace_back(body, i);
  return threads;
}

void join(std::vector<std::thread>& threads) {
  for (std::thread& one : threads) one.join();
}

}  // namespace

TEST_CASE("post: a posted function runs on the loop's thread, and wakes the loop for it", "[ae]") {
  AnyLoop loop;
  std::thread::id ran_on;
  std::thread other;
  std::atomic<bool> asleep{false};
  // Posts only when the loop is about to sleep; nothing else would wake it.
  TestSource source(nullptr);
  source.on_arm = [&] { asleep = true; };
  loop.add_source(source);
  other = std::thread([&] {
    while (!asleep) std::this_thread::yield();
    loop.post([&] {
      ran_on = std::this_thread::get_id();
      loop.stop();
    });
  });
  loop.run();
  CHECK(ran_on == std::this_thread::get_id());
  other.join();
}

TEST_CASE("post: no wake-up is lost, whenever the post comes", "[ae]") {
  AnyLoop loop;
  std::atomic<int> done{0};
  // Ping-pong: each post comes at any point between the last one and the sleep.
  constexpr int kRounds = 20'000;
  std::thread other([&] {
    for (int i = 0; i < kRounds; ++i) {
      loop.post([&] { ++done; });
      while (done <= i) std::this_thread::yield();
    }
    loop.post([&] { loop.stop(); });
  });
  loop.run();
  other.join();
  CHECK(done == kRounds);
}

TEST_CASE("post: a million from four threads run once each, in the order of each thread",
          "[ae][large]") {
  AnyLoop loop;
  Ledger ledger;
  constexpr std::uint32_t kEach = 250'000;
  auto threads = start_threads([&](std::size_t thread) {
    const ae::Poster poster = loop.poster();
    for (std::uint32_t i = 0; i < kEach; ++i) {
      const auto fn = [&ledger, thread, i] { ledger.ran(thread, i); };
      if (i % 2 == 0) {
        loop.post(fn);
      } else if (!poster.post(fn)) {
        std::abort();
      }
    }
  });
  const bool all = runs_until(loop, [&] { return ledger.total == kEach * kThreads; });
  join(threads);
  REQUIRE(all);
  CHECK(ledger.in_order);
  turns(loop, 3);
  CHECK(ledger.total == kEach * kThreads);
}

TEST_CASE("post: what a posted function posts runs in the next iteration", "[ae]") {
  AnyLoop loop;
  std::string journal;
  loop.post([&] {
    journal += 'a';
    loop.post([&] {
      journal += 'c';
      loop.post([&] { journal += 'd'; });
    });
  });
  loop.post([&] { journal += 'b'; });
  CHECK(loop.process_events(kFullIteration) == 2);
  CHECK(journal == "ab");
  CHECK(loop.process_events(kFullIteration) == 1);  // no sleep while it waits
  CHECK(loop.process_events(kFullIteration) == 1);
  CHECK(journal == "abcd");
}

TEST_CASE("post: a flood of posts leaves room for files and timers", "[ae]") {
  AnyLoop loop;
  Sockets s;
  s.send();
  int since_read = 0;
  int longest = 0;
  int ran = 0;
  bool timer = false;
  loop.add_file_event(s.near, kReadable, [&](int, Mask) { since_read = 0; });
  loop.add_time_event(0ms, [&] { return timer = true, kNoMore; });
  constexpr int kPosts = 50'000;
  for (int i = 0; i < kPosts; ++i) {
    loop.post([&] {
      ++ran;
      longest = std::max(longest, ++since_read);
    });
  }
  turns(loop, 2);
  CHECK(timer);
  REQUIRE(runs_until(loop, [&] { return ran == kPosts; }));
  CHECK(longest <= 1000);
}

TEST_CASE("post: posts that come while a part of older ones is left are not forgotten", "[ae]") {
  AnyLoop loop;
  int ran = 0;
  for (int i = 0; i < 1500; ++i) loop.post([&] { ++ran; });
  loop.process_events(kFullIteration);
  REQUIRE(ran > 0);
  REQUIRE(ran <= 1000);       // fewer on a slow machine, where they use up the time slice
  loop.post([&] { ++ran; });  // its wake-up is consumed by an iteration that runs older ones
  while (ran < 1500) loop.process_events(kFullIteration);
  REQUIRE(ran == 1500);  // the batch ends before later posts begin
  CHECK(loop.process_events(kFullIteration) == 1);
  CHECK(ran == 1501);
}

TEST_CASE("post: a post runs whatever the flags of process_events() say", "[ae]") {
  AnyLoop loop;
  int ran = 0;
  for (const ae::Process flags :
       {kDontWait, kFileEvents | kDontWait, kTimeEvents | kDontWait, kFileEvents | kTimeEvents}) {
    loop.post([&] { ++ran; });
    CHECK(loop.process_events(flags) == 1);
  }
  CHECK(ran == 4);
}

TEST_CASE("post: an empty function is no function", "[ae]") {
  AnyLoop loop;
  loop.post(nullptr);
  CHECK(loop.poster().post(nullptr));
  turns(loop, 2);
}

TEST_CASE("post: a poster without a loop refuses", "[ae]") {
  bool ran = false;
  CHECK_FALSE(ae::Poster().post([&] { ran = true; }));
  ae::Poster poster;
  {
    AnyLoop loop;
    poster = loop.poster();
    CHECK(poster.post([] {}));
  }
  const auto owned = std::make_shared<int>(1);
  CHECK_FALSE(poster.post([&ran, owned] { ran = true; }));
  CHECK_FALSE(ran);
  CHECK(owned.use_count() == 1);  // refused and destroyed
}

TEST_CASE("post: what was accepted before the loop dies runs once, while it dies", "[ae]") {
  int ran = 0;
  bool accepted = true;
  ae::Poster poster;
  {
    AnyLoop loop;
    poster = loop.poster();
    for (int i = 0; i < 5000; ++i) loop.post([&] { ++ran; });
    loop.process_events(kPoll);  // some of them
    CHECK(ran < 5000);
    loop.post([&] {
      accepted = poster.post([&] { ran += 1'000'000; });
      throw Oops{1};  // the exception is lost; the others still run
    });
    loop.post([&] { ++ran; });
  }
  CHECK(ran == 5001);
  CHECK_FALSE(accepted);
}

TEST_CASE("post: a loop that dies under posting threads keeps each promise and no other", "[ae]") {
  for (int round = 0; round < 30; ++round) {
    Ledger ledger;
    std::array<std::uint32_t, kThreads> accepted{};
    std::optional<AnyLoop> loop(std::in_place);
    const ae::Poster poster = loop->poster();
    std::atomic<bool> over{false};
    auto threads = start_threads([&](std::size_t thread) {
      std::uint32_t& count = accepted[thread];
      while (poster.post([&ledger, thread, number = count] { ledger.ran(thread, number); }))
        ++count;
      while (!over) std::this_thread::yield();
      if (poster.post([] {})) std::abort();
    });
    runs_until(*loop, [&] { return ledger.total > 1000; });
    loop.reset();
    over = true;
    join(threads);
    REQUIRE(ledger.in_order);
    for (std::size_t i = 0; i < kThreads; ++i) REQUIRE(ledger.next[i] == accepted[i]);
  }
}

TEST_CASE("post: posts during stop() and between two runs are kept", "[ae]") {
  AnyLoop loop;
  Ledger ledger;
  constexpr std::uint32_t kEach = 5000;
  auto threads = start_threads([&](std::size_t thread) {
    for (std::uint32_t i = 0; i < kEach; ++i) {
      loop.post([&, thread, i] {
        ledger.ran(thread, i);
        if (i % 100 == 0 || ledger.total == kEach * kThreads) loop.stop();
      });
    }
  });
  while (ledger.total < kEach * kThreads) loop.run();
  join(threads);
  CHECK(ledger.in_order);
}

TEST_CASE("post: a spinning loop sees the posts of other threads", "[ae]") {
  AnyLoop loop;
  TestSource source(nullptr);
  source.budget = 1h;  // a spin that nothing else ends
  std::atomic<bool> spinning{false};
  source.on_poll = [&] { spinning = true; };
  loop.add_source(source);
  bool ran = false;
  std::thread other([&] {
    while (!spinning) std::this_thread::yield();
    loop.post([&] { ran = true; });
  });
  loop.process_events(kFullIteration);
  other.join();
  CHECK(ran);
}

TEST_CASE("post: what a posted function owns dies on the loop's thread", "[ae][lifetime]") {
  struct Owned {
    std::thread::id* died_on;
    ~Owned() { *died_on = std::this_thread::get_id(); }
  };
  AnyLoop loop;
  std::thread::id died_on;
  std::thread other([&] {
    auto owned = std::make_shared<Owned>(Owned{&died_on});
    loop.post([own = std::move(owned)] {});
  });
  other.join();
  loop.process_events(kFullIteration);
  CHECK(died_on == std::this_thread::get_id());
}

TEST_CASE("post: two loops on two threads may post to each other", "[ae]") {
  AnyLoop here;
  std::atomic<testing::AnyLoop*> there{nullptr};
  int balls = 0;
  constexpr int kBalls = 5000;
  std::function<void()> serve;
  std::thread other([&] {
    AnyLoop loop;
    there = &loop;
    here.post([&] { serve(); });
    loop.run();
  });
  serve = [&] {
    if (++balls == kBalls) {
      there.load()->post([&] { there.load()->stop(); });
      here.stop();
      return;
    }
    there.load()->post([&] { here.post([&] { serve(); }); });
  };
  here.run();
  other.join();
  CHECK(balls == kBalls);
}
