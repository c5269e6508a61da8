// SPDX-License-Identifier: BSD-3-Clause
// Loops::ask_each(): from any thread, also from those of the loops, which ask each other.

#include <ev.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "ae/epoll_loop.h"
#include "ae/libev_loop.h"
#include "ae/loop_group.h"
#include "tests/support/await.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

namespace {

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

/// A descriptor that is always readable.
struct Readable {
  Readable() = default;
  Readable(const Readable&) = delete;
  Readable& operator=(const Readable&) = delete;
  ~Readable() { ::close(fd); }
  const int fd = ::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
};

constexpr ae::Process kOnce = ae::kFullIteration | ae::kDontWait;

/// Runs one iteration of `loop` on a thread, whose first handler asks the loop; returns whether it
/// was answered, or does not return. `makes`: the handler also makes the list of the loop.
bool first_handler_asks(ae::EventLoop& loop, const std::function<void()>& iteration, bool makes) {
  const Readable always;
  std::unique_ptr<ae::LoopList> list;
  if (!makes) list = std::make_unique<ae::LoopList>(std::vector<ae::EventLoop*>{&loop});
  std::atomic<bool> answered{false}, done{false};
  loop.add_file_event(always.fd, ae::kReadable, [&](int, ae::Mask) {
    loop.remove_file_event(always.fd, ae::kReadable);
    if (makes) list = std::make_unique<ae::LoopList>(std::vector<ae::EventLoop*>{&loop});
    list->ask_each([&](ae::EventLoop& its, std::size_t) { answered = &its == &loop; });
    done = true;
  });
  std::thread thread([&] {
    while (!done) iteration();
  });
  testing::await([&] { return done.load(); });
  thread.join();
  return answered;
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
  testing::await([&] { return rounds == 3 * kTimes; });
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
  testing::await([&] { return rounds == 4 * kTimes; });
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
  testing::await([&] { return caught == 1; });
}

TEST_CASE("loops: a loop that has ended is an error, and the others are asked", "[loop][group]") {
  ae::LoopGroup group({.loops = 3});
  group.poster(1).post([&] { group.loop(1)->stop(); });
  testing::await([&] { return !group.poster(1).open(); });
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
  testing::await([&] { return done == 2; });
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
  testing::await([&] { return asking.load(); });
  group.poster(0).post([&] {
    early = !asked;
    ran = true;
  });
  // What another thread asks of loop 0 is answered meanwhile.
  std::atomic<int> answers{0};
  group.ask(0, [&](ae::EventLoop&) { ++answers; });
  CHECK(answers == 1);
  go = true;
  testing::await([&] { return ran.load(); });
  CHECK_FALSE(early);
}

TEST_CASE("loops: a handler of the first iteration asks its own loop", "[loop][group]") {
  for (const bool makes : {false, true}) {
    ae::EpollLoop iterated, hosted;
    CHECK(first_handler_asks(
        iterated, [&] { iterated.process_events(kOnce); }, makes));
    (void)hosted.descriptor();
    CHECK(first_handler_asks(
        hosted, [&] { hosted.dispatch(); }, makes));
    ae::LibevLoop libev;
    CHECK(first_handler_asks(
        libev, [&] { libev.process_events(kOnce); }, makes));
    const std::unique_ptr<struct ev_loop, void (*)(struct ev_loop*)> host(ev_loop_new(0),
                                                                          ev_loop_destroy);
    ae::LibevLoop borrowed(host.get());
    CHECK(first_handler_asks(
        borrowed, [&] { ev_run(host.get(), EVRUN_NOWAIT); }, makes));
  }
}

TEST_CASE("loops: a loop that another thread runs now is asked there", "[loop][group]") {
  ae::EpollLoop loop;
  ae::LoopList list({&loop});
  loop.process_events(kOnce);
  CHECK(list.thread(0) == std::this_thread::get_id());
  CHECK_THROWS_AS(list.on_each([](ae::EventLoop&, std::size_t) {}), ae::LoopError);
  std::thread::id answerer;
  list.ask(0, [&](ae::EventLoop&) { answerer = std::this_thread::get_id(); });
  CHECK(answerer == std::this_thread::get_id());

  std::atomic<bool> asked{false};
  std::thread worker([&] { loop.run(); });
  testing::await([&] { return list.thread(0) == worker.get_id(); });
  list.ask(0, [&](ae::EventLoop&) { answerer = std::this_thread::get_id(); });
  CHECK(answerer == worker.get_id());
  list.on_each([&](ae::EventLoop&, std::size_t) { answerer = std::this_thread::get_id(); });
  CHECK(answerer == worker.get_id());
  // The worker itself does not wait for its own loop.
  list.poster(0).post([&] {
    list.ask(0, [&](ae::EventLoop&) { asked = std::this_thread::get_id() == worker.get_id(); });
    loop.stop();
  });
  testing::await([&] { return asked.load(); });
  worker.join();
  // It has ended, and this thread goes on with its loop.
  loop.process_events(kOnce);
  list.ask(0, [&](ae::EventLoop&) { answerer = std::this_thread::get_id(); });
  CHECK(answerer == std::this_thread::get_id());
}

TEST_CASE("loops: a thread that takes over a loop waits while the other looks at it",
          "[loop][group]") {
  for (const bool destroys : {false, true}) {
    auto loop = std::make_unique<ae::EpollLoop>();
    ae::LoopList list({loop.get()});
    loop->process_events(kOnce);
    std::atomic<bool> begins{false}, ran{false};
    bool early = false;
    loop->post([&] { ran = true; });
    std::thread worker;
    list.ask(0, [&](ae::EventLoop&) {
      worker = std::thread([&] {
        begins = true;
        if (destroys)
          loop.reset();
        else
          loop->process_events(kOnce);
      });
      testing::await([&] { return begins.load(); });
      for (int i = 0; i < 1000; ++i) {
        std::this_thread::yield();
        early |= ran;
      }
    });
    worker.join();
    CHECK(ran);
    CHECK_FALSE(early);
  }
}
