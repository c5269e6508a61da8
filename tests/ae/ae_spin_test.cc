// SPDX-License-Identifier: BSD-3-Clause
// Loops that spin on their descriptors, and the options that enable it.

#include <atomic>
#include <string>
#include <thread>

#include "ae/spin/spin_environment.h"
#include "conn/error.h"
#include "conn/url/spin_option.h"
#include "tests/support/catch.h"
#include "tests/support/loop_kit.h"

using namespace loop_kit;
using ae::LoopTimes;
using ae::Spin;

TEST_CASE("spin: a loop that never sleeps serves descriptors, timers, posts and stop()",
          "[ae][spin]") {
  AnyLoop loop;
  loop.set_spin({.mode = Spin::Mode::kAlways});
  Sockets s;
  int reads = 0, timers = 0;
  bool posted = false;
  // The order of the last read and the post is not specified.
  const auto stop_at_end = [&] {
    if (posted && reads == 10) loop.stop();
  };
  loop.add_file_event(s.near, kReadable, [&](int fd, Mask) {
    reads += take_byte(fd) ? 1 : 0;
    stop_at_end();
  });
  loop.add_time_event(1ms, [&]() -> ae::Duration {
    s.send();
    if (++timers < 10) return 1ms;
    loop.post([&] {
      posted = true;
      stop_at_end();
    });
    return kNoMore;
  });
  loop.run();
  CHECK(timers == 10);
  CHECK(reads == 10);
  CHECK(posted);
  const LoopTimes times = loop.times();
  CHECK(times.slept == 0ns);
  CHECK(times.spun > 0ns);
  CHECK(times.spun + times.busy >= 9ms);
  CHECK(times.spin_hits >= 10);
  CHECK(times.spin_misses == 0);
}

TEST_CASE("spin: after its time a loop sleeps, and knows how it spent it", "[ae][spin]") {
  AnyLoop loop;
  loop.set_spin({.mode = Spin::Mode::kFixed, .time = 1ms});
  int left = 5;
  loop.add_time_event(20ms, [&]() -> ae::Duration {
    if (--left == 0) loop.stop();
    return left == 0 ? kNoMore : ae::Duration(20ms);
  });
  const auto began = steady_clock::now();
  loop.run();
  const ae::Duration all = steady_clock::now() - began;
  const LoopTimes times = loop.times();
  CHECK(times.spin_misses >= 4);
  CHECK(times.spun >= 4ms);
  CHECK(times.slept > 0ms);
  CHECK(times.busy + times.spun + times.slept <= all);
}

TEST_CASE("spin: without it nothing is measured, and it can be taken back", "[ae][spin]") {
  AnyLoop loop;
  Sockets s;
  loop.add_file_event(s.near, kReadable, [&](int fd, Mask) { take_byte(fd); });
  const auto serve = [&] {
    s.send();
    loop.process_events(kFullIteration);
    turns(loop, 2);
  };
  serve();
  CHECK(loop.times().busy + loop.times().spun + loop.times().slept == 0ns);
  loop.set_spin({.mode = Spin::Mode::kAlways});
  serve();
  serve();
  const LoopTimes spinning = loop.times();
  CHECK(spinning.spin_hits >= 1);
  loop.set_spin({});
  serve();
  serve();
  CHECK(loop.times().spin_hits == spinning.spin_hits);
  CHECK(loop.times().slept == spinning.slept);
}

TEST_CASE("spin: asked for something else while it spins, a loop does that at once", "[ae][spin]") {
  AnyLoop loop;
  loop.set_spin({.mode = Spin::Mode::kAlways});
  int looks = 0;
  loop.add_before_sleep([&] {
    if (++looks == 10) loop.set_spin({.mode = Spin::Mode::kFixed, .time = 1us});
  });
  loop.add_time_event(50ms, [&] {
    loop.stop();
    return kNoMore;
  });
  loop.run();
  REQUIRE(looks >= 10);
  CHECK(loop.times().slept > 0ns);
  CHECK(loop.times().spin_misses >= 1);
}

TEST_CASE("spin: a governed loop serves as any other, from several threads", "[ae][spin]") {
  AnyLoop loop;
  loop.set_spin({.mode = GENERATE(Spin::Mode::kAuto, Spin::Mode::kFast)});
  std::atomic<int> ran = 0;
  std::thread poster([poster = loop.poster(), &ran, &loop] {
    for (int i = 1; i <= 2000; ++i) {
      (void)poster.post([&ran] { ++ran; });
      while (i % 20 == 0 && ran < i) std::this_thread::yield();
    }
    (void)poster.post([&loop] { loop.stop(); });
  });
  loop.run();
  poster.join();
  CHECK(ran == 2000);
  const LoopTimes times = loop.times();
  CHECK(times.sleep_cost >= 2us);
  CHECK(times.sleep_cost <= 100us);
}

TEST_CASE("spin: what several ask for is the most of each", "[ae][spin]") {
  const Spin fixed{.mode = Spin::Mode::kFixed, .time = 20us};
  const Spin automatic{.mode = Spin::Mode::kAuto, .most = 50us, .sleep_cost = 3us};
  CHECK(Spin::both({}, automatic) == automatic);
  CHECK(Spin::both(automatic, {}) == automatic);
  const Spin both = Spin::both(fixed, automatic);
  CHECK(both.mode == Spin::Mode::kFixed);
  CHECK(both.time == 20us);
  CHECK(both.most == 100us);
  CHECK(both.sleep_cost == 3us);
  CHECK(both == Spin::both(automatic, fixed));
}

TEST_CASE("spin: the options say how a loop waits", "[ae][spin][options]") {
  using conn::parse_spin;
  CHECK(parse_spin("no") == Spin{});
  CHECK(parse_spin("0").mode == Spin::Mode::kNo);
  CHECK(parse_spin("auto").mode == Spin::Mode::kAuto);
  CHECK(parse_spin("fast").mode == Spin::Mode::kFast);
  CHECK(parse_spin("always").mode == Spin::Mode::kAlways);
  CHECK(parse_spin("20us").mode == Spin::Mode::kFixed);
  CHECK(parse_spin("20us").time == 20us);
  CHECK(parse_spin("auto&spin-max=50us").most == 50us);
  CHECK_THROWS_WITH(parse_spin("auto&sleep-cost=5us"),
                    "spin has no option sleep-cost any more: leave it out, the loop measures it");
  // Names and modes come from one table; the first entry is the default.
  CHECK(parse_spin(conn::spin_words().front()) == Spin{});
  for (const std::string_view word : conn::spin_words()) CHECK_NOTHROW(parse_spin(word));
  CHECK_THROWS_WITH(parse_spin("yes"),
                    testing::Contains("use no, auto, fast, always or a time such as 20us"));
  for (const char* wrong : {"yes", "", "-1us", "101ms", "auto&spin-max=0", "auto&sleep-latency=5us",
                            "auto&window=4k", "20 us"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(parse_spin(wrong), conn::Error);
  }
}

TEST_CASE("spin: a quota below one processor is seen in cpu.max", "[ae][spin]") {
  using ae::is_below_one_processor;
  CHECK_FALSE(is_below_one_processor("max 100000\n"));
  CHECK_FALSE(is_below_one_processor("100000 100000\n"));
  CHECK_FALSE(is_below_one_processor("250000 100000\n"));
  CHECK(is_below_one_processor("99999 100000\n"));
  CHECK(is_below_one_processor("5000 100000"));
  CHECK_FALSE(is_below_one_processor(""));
  ae::SpinEnvironment environment;
  const ae::SpinRoom::Seen seen = environment.look();
  CHECK(seen.processors >= 1);
}
