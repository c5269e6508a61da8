// SPDX-License-Identifier: BSD-3-Clause
// Tests of event_loop.h: hooks and sources.

#include "tests/support/any_loop.h"

#include <ev.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "ae/core/hook_list.h"
#include "ae/core/source_list.h"
#include "tests/support/catch.h"
#include "tests/support/loop_kit.h"

using namespace loop_kit;

// --- hooks ---------------------------------------------------------------------------------------

TEST_CASE("source list: it is empty when its last source went while it was asked", "[ae]") {
  ae::LoopCore core;
  ae::SourceList list(core);
  std::string journal;
  TestSource source(&journal);
  source.pending = 1;
  source.on_process = [&] { list.remove(source); };
  list.add(source);
  CHECK(ae::SourceList::Visit(list).process_pending() == 1);
  CHECK(list.idle());
}

TEST_CASE("hook list: it says whether it had what is removed", "[ae]") {
  ae::HookList list;
  list.add(7, [] {});
  CHECK_FALSE(list.remove(8));
  CHECK(list.remove(7));
  CHECK_FALSE(list.remove(7));
  CHECK(list.empty());
}

TEST_CASE("event loop: an iteration has the order that the header says", "[ae]") {
  AnyLoop loop;
  std::string journal;
  Sockets s;
  s.send();
  TestSource one(&journal, '1');
  TestSource two(&journal, '2');
  loop.add_source(one);
  loop.add_source(two);
  loop.add_before_sleep([&] { journal += "b1 "; });
  loop.add_before_sleep([&] { journal += "b2 "; });
  loop.add_after_sleep([&] { journal += "A1 "; });
  loop.add_after_sleep([&] { journal += "A2 "; });
  loop.add_file_event(s.near, kReadable, [&](int fd, Mask) {
    journal += "file ";
    take_byte(fd);
  });
  loop.process_events(kFullIteration);
  CHECK(journal == "1p 2p b1 b2 1f 2f 1a 2a A1 A2 file ");
}

TEST_CASE("event loop: hooks may remove themselves, others, and add new ones", "[ae][lifetime]") {
  AnyLoop loop;
  std::string journal;
  ae::HookId first = 0;
  ae::HookId second = 0;
  ae::HookId third = 0;
  const bool before = GENERATE(true, false);
  const auto add = [&](std::function<void()> hook) {
    return before ? loop.add_before_sleep(std::move(hook)) : loop.add_after_sleep(std::move(hook));
  };
  first = add([&, owned = std::make_shared<int>(1)] {
    journal += '1';
    loop.remove_hook(first);
    loop.remove_hook(second);
    add([&] { journal += '4'; });
    journal += static_cast<char>('0' + *owned);
  });
  second = add([&] { journal += '2'; });
  third = add([&] { journal += '3'; });
  turns(loop, 1);
  CHECK(journal == "113");
  turns(loop, 1);
  CHECK(journal == "11334");
  loop.remove_hook(third);
  loop.remove_hook(third);
  turns(loop, 1);
  CHECK(journal == "113344");
}

// --- sources -------------------------------------------------------------------------------------

TEST_CASE("event loop: it does not sleep while a source has pending work", "[ae]") {
  AnyLoop loop;
  std::string journal;
  TestSource source(&journal);
  source.pending = 3;
  loop.add_source(source);
  loop.add_source(source);  // no-op
  // No event would end these: they would sleep for ever if the source did not veto.
  CHECK(loop.process_events(kFullIteration) == 1);
  CHECK(loop.process_events(kFullIteration) == 1);
  CHECK(journal == "sp sf sp sf ");
  bool timer = false;
  loop.add_time_event(1ms, [&] {
    timer = true;
    return kNoMore;
  });
  REQUIRE(runs_until(loop, [&] { return timer; }));
  CHECK(journal.substr(0, 15) == "sp sf sp sf sp ");
  CHECK(source.pending == 0);
  loop.remove_source(source);
  loop.remove_source(source);  // no-op
}

TEST_CASE("event loop: sources are served in an iteration that does not wait, but not armed",
          "[ae]") {
  AnyLoop loop;
  std::string journal;
  TestSource source(&journal);
  loop.add_source(source);
  loop.process_events(kPoll);
  loop.process_events(kDontWait);
  loop.process_events(static_cast<ae::Process>(0));  // nothing to wait for: returns at once
  CHECK(journal == "sp sf sp sf sp sf ");
}

TEST_CASE("event loop: a source that arms and finds work vetoes the sleep", "[ae]") {
  AnyLoop loop;
  std::string journal;
  TestSource source(&journal);
  source.vetoes = 2;
  loop.add_source(source);
  loop.process_events(kFullIteration);
  loop.process_events(kFullIteration);
  CHECK(journal == "sp sf sa sp sf sa ");
}

TEST_CASE("event loop: what a source finds while it arms is served before descriptors are asked",
          "[ae]") {
  AnyLoop loop;
  TestSource source(nullptr);
  loop.add_source(source);
  // The source finds more work each time it arms; a descriptor is always readable.
  int found = 0;
  source.pending = 1;
  source.on_arm = [&] {
    ++found;
    source.pending = 1;
  };
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  REQUIRE(::write(ends[1], "x", 1) == 1);
  int before_first = 0, asked = 0;
  loop.add_file_event(ends[0], ae::kReadable, [&](int, ae::Mask) {
    if (asked++ == 0) before_first = found;
    if (asked == 2) loop.stop();
  });
  loop.run();
  CHECK(before_first > 1);            // more than once before descriptors are polled
  CHECK(found - before_first <= 64);  // and they are polled again soon
  loop.remove_file_event(ends[0], ae::kReadable);
  for (const int end : ends) ::close(end);
}

TEST_CASE("event loop: what comes up while sources are armed vetoes the sleep", "[ae]") {
  AnyLoop loop;
  TestSource source(nullptr);
  TestSource late(nullptr, 'l');
  loop.add_source(source);
  SECTION("pending work of a source that was asked before") {
    loop.add_source(late);
    late.on_arm = [&] { source.pending = 1; };
  }
  SECTION("a new source with work") {
    late.pending = 1;
    source.on_arm = [&] { loop.add_source(late); };
  }
  SECTION("a post") {
    source.on_arm = [&] { loop.post([] {}); };
  }
  SECTION("an object to destroy") {
    source.on_arm = [&] { loop.destroy_later(thing([] {})); };
  }
  loop.process_events(kFullIteration);  // returns
}

TEST_CASE("event loop: sources may come and go inside each of their functions", "[ae][lifetime]") {
  AnyLoop loop;
  std::string journal;
  TestSource first(&journal, '1');
  auto second = std::make_unique<TestSource>(&journal, '2');
  TestSource third(&journal, '3');
  loop.add_source(first);
  loop.add_source(*second);
  loop.add_source(third);
  loop.add_time_event(1ms, [] { return kNoMore; });
  const auto leave = [&] {
    loop.remove_source(first);
    if (second) loop.remove_source(*second);
    second.reset();
  };
  SECTION("in process_pending") {
    first.on_process = leave;
    loop.process_events(kFullIteration);
    CHECK(journal == "1p 3p 3f 3a ");
  }
  SECTION("in flush") {
    first.on_flush = leave;
    loop.process_events(kFullIteration);
    CHECK(journal == "1p 2p 3p 1f 3f 3a ");
  }
  SECTION("in arm") {
    first.on_arm = leave;
    loop.process_events(kFullIteration);
    CHECK(journal == "1p 2p 3p 1f 2f 3f 1a 3a ");
  }
  SECTION("while spinning") {
    first.budget = 10us;
    first.on_poll = leave;
    loop.process_events(kFullIteration);
    CHECK(journal == "1p 2p 3p 1f 2f 3f 3a ");
  }
}

TEST_CASE("event loop: of a source that rests it calls no function", "[ae]") {
  AnyLoop loop;
  std::string journal;
  TestSource one(&journal, '1'), two(&journal, '2'), three(&journal, '3');
  one.rest();
  for (TestSource* const source : {&one, &two, &three}) loop.add_source(*source);
  const auto next = [&] {
    journal.clear();
    loop.process_events(kPoll);
    return journal;
  };
  SECTION("until it wakes") {
    CHECK(next() == "2p 3p 2f 3f ");
    three.rest();
    three.rest();
    CHECK(next() == "2p 2f ");
    one.wake();
    one.wake();
    CHECK(next() == "1p 2p 1f 2f ");
    one.rest();
    two.rest();
    CHECK(next().empty());
    three.wake();
    CHECK(next() == "3p 3f ");
  }
  SECTION("wherever it is called") {
    three.rest();
    two.on_process = [&] { one.wake(), three.wake(), two.rest(); };
    CHECK(next() == "2p 3p 1f 3f ");
    CHECK(next() == "1p 3p 1f 3f ");
    one.on_process = [&] { one.rest(); };
    one.on_flush = [&] { FAIL("it rests"); };
    three.on_flush = [&] { two.wake(); };
    CHECK(next() == "1p 3p 3f ");
    three.on_flush = nullptr;
    two.on_process = nullptr;
    CHECK(next() == "2p 3p 2f 3f ");
  }
  SECTION("the only one that does not rest goes") {
    three.rest();
    two.on_process = [&] { loop.remove_source(two), three.wake(); };
    CHECK(next() == "2p 3p 3f ");
    loop.add_source(two);
    two.on_process = nullptr;
    CHECK(next() == "3p 2p 3f 2f ");
  }
  for (TestSource* const source : {&one, &two, &three}) loop.remove_source(*source);
}

TEST_CASE("event loop: a source and its loop may be destroyed in either order", "[ae]") {
  std::string journal;
  auto source = std::make_unique<TestSource>(&journal, '1');
  {
    AnyLoop loop;
    source->rest();
    loop.add_source(*source);
  }
  source->wake();
  source->rest();
  AnyLoop other;
  other.add_source(*source);
  source->wake();
  other.process_events(kPoll);
  CHECK(journal == "1p 1f ");
  source.reset();
  other.process_events(kPoll);
  CHECK(journal == "1p 1f ");
}

TEST_CASE("event loop: a source that wakes in a handler is called before the sleep", "[ae]") {
  AnyLoop loop;
  TestSource source(nullptr);
  source.rest();
  loop.add_source(source);
  const Sockets s;
  int reads = 0, flushes = 0;
  source.on_flush = [&] {
    source.rest();
    if (reads != 0 && ++flushes < 3) s.send();
    if (flushes == 3) loop.stop();
  };
  loop.add_file_event(s.near, kReadable, [&](int fd, Mask) {
    reads += take_byte(fd);
    source.wake();
  });
  s.send();
  loop.run();
  CHECK(reads == 3);
  CHECK(flushes == 3);
  loop.remove_file_event(s.near, kReadable);
  loop.remove_source(source);
}

TEST_CASE("event loop: it spins for the budget before it arms, and work ends the spin", "[ae]") {
  AnyLoop loop;
  std::string journal;
  TestSource source(&journal);
  loop.add_source(source);
  SECTION("work comes") {
    source.budget = 1h;
    source.on_poll = [&] {
      if (source.polls == 1000) source.pending = 1;
    };
    CHECK(loop.process_events(kFullIteration) == 1);
    CHECK(source.polls == 1000);
    CHECK(journal.find("sa") == std::string::npos);
  }
  SECTION("work comes that runs no handler, for which the caller may be waiting") {
    source.budget = 1h;
    source.on_poll = [&] {
      if (source.polls == 1000) source.pending = 1;
    };
    source.on_process = [&] { source.pending = 0; };
    CHECK(loop.process_events(kFullIteration) == 0);
    CHECK(source.polls == 1000);
  }
  SECTION("a post comes") {
    source.budget = 1h;
    int posted = 0;
    source.on_poll = [&] {
      if (source.polls == 10) loop.post([&] { ++posted; });
    };
    loop.process_events(kFullIteration);
    CHECK(posted == 1);
  }
  SECTION("nothing comes") {
    steady_clock::time_point start, armed;
    source.on_arm = [&] {
      armed = steady_clock::now();
      loop.post([] {});  // ends the sleep
    };
    // A slow machine may have time for only one poll: then the budget is increased.
    for (source.budget = 2ms; source.polls < 2; source.budget *= 4) {
      REQUIRE(source.budget < 1min);
      journal.clear();
      source.polls = 0;
      start = steady_clock::now();
      loop.process_events(kFullIteration);
      CHECK(armed - start >= source.budget);
      loop.process_events(kPoll);
      armed = {};
    }
    // The source was processed repeatedly, and armed once.
    CHECK(journal.starts_with("sp sf sp sf "));
    CHECK(journal.find("sa ") == journal.rfind("sa "));
    CHECK(journal.find("sa ") != std::string::npos);
  }
  SECTION("there is no budget") {
    loop.add_time_event(0ms, [] { return kNoMore; });
    loop.process_events(kFullIteration);
    CHECK(source.polls == 0);
  }
  SECTION("descriptors are busy: they are asked before it spins") {
    Sockets s;
    s.send();
    loop.add_file_event(s.near, kReadable, [](int, Mask) {});
    loop.process_events(kPoll);
    source.budget = 1h;
    CHECK(loop.process_events(kFullIteration) == 1);
    CHECK(source.polls == 0);
  }
}

TEST_CASE("event loop: a spin holds back no timer, no descriptor and no hook", "[ae]") {
  AnyLoop loop;
  TestSource source(nullptr);
  source.budget = 1h;
  loop.add_source(source);
  SECTION("a timer") {
    const auto start = steady_clock::now();
    int fired = 0;
    loop.add_time_event(1ms, [&] {
      ++fired;
      return kNoMore;
    });
    CHECK(loop.process_events(kFullIteration) == 1);
    CHECK(fired == 1);
    CHECK(steady_clock::now() - start >= 1ms);
    CHECK(source.polls > 1);
  }
  SECTION("a descriptor") {
    Sockets s;
    source.on_poll = [&] {
      if (source.polls == 10) s.send();
    };
    int reads = 0;
    loop.add_file_event(s.near, kReadable, [&](int fd, Mask) { reads += take_byte(fd) ? 1 : 0; });
    CHECK(loop.process_events(kFullIteration) == 1);
    CHECK(reads == 1);
  }
  SECTION("all of them, in run()") {
    Sockets s;
    int hooks = 0, reads = 0, timers = 0;
    loop.add_before_sleep([&] { ++hooks; });
    loop.add_file_event(s.near, kReadable, [&](int fd, Mask) { reads += take_byte(fd) ? 1 : 0; });
    loop.add_time_event(1ms, [&]() -> ae::Duration {
      s.send();
      if (++timers < 10) return 1ms;
      loop.add_time_event(1ms, [&] {
        loop.stop();
        return kNoMore;
      });
      return kNoMore;
    });
    loop.run();
    CHECK(reads == 10);
    CHECK(hooks > 10);
  }
  loop.remove_source(source);
}

TEST_CASE("event loop: spins that find work without end hold back no descriptor", "[ae]") {
  AnyLoop loop;
  TestSource source(nullptr);
  source.budget = 1h;
  std::size_t served = 0, served_before_file = 0;
  Sockets s;
  source.on_poll = [&] { source.pending = 1; };
  source.on_process = [&] {
    if (++served == 10) s.send();
    if (served == 1000) loop.stop();
  };
  loop.add_source(source);
  loop.add_file_event(s.near, kReadable, [&](int fd, Mask) {
    take_byte(fd);
    served_before_file = served;
    loop.stop();
  });
  loop.run();
  CHECK(served_before_file >= 10);
  CHECK(served_before_file < 10 + 100);
  loop.remove_source(source);
}

TEST_CASE("event loop: a spin ends with its budget, whatever it looked at meanwhile", "[ae]") {
  AnyLoop loop;
  TestSource source(nullptr);
  source.budget = 3ms;
  loop.add_source(source);
  const auto start = steady_clock::now();
  steady_clock::time_point armed;
  source.on_arm = [&] {
    if (armed == steady_clock::time_point{}) armed = steady_clock::now();
    loop.stop();
    source.vetoes = 1;
  };
  loop.run();
  CHECK(armed - start >= 3ms);
  loop.remove_source(source);
}

TEST_CASE("event loop: one iteration does not sleep after it has served a source", "[ae]") {
  AnyLoop loop;
  TestSource source(nullptr);
  loop.add_source(source);
  bool slept = false;
  loop.add_time_event(5s, [&] {
    slept = true;
    return ae::kNoMore;
  });
  source.pending = 1;
  CHECK(loop.process_events(kFullIteration) == 1);
  CHECK_FALSE(slept);
  loop.remove_source(source);
}
