// Every sentence of ae/event_loop.h about one thread, on a loop of its own. Loops of a host program
// are in ae_borrowed_test.cc, other threads in ae_post_test.cc, costs in ae_cost_test.cc.

#include "ae/libev_loop.h"

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

#include "tests/support/catch.h"
#include "tests/support/loop_kit.h"

using namespace loop_kit;

// --- file events ---------------------------------------------------------------------------------

TEST_CASE("event loop: a file handler is called again in each iteration while its file is ready",
          "[ae]") {
  LibevLoop loop;
  Sockets s;
  int calls = 0;
  int fd_seen = -1;
  Mask ready_seen = ae::kNone;
  loop.add_file_event(s.near, kReadable, [&](int fd, Mask ready) {
    ++calls;
    fd_seen = fd;
    ready_seen = ready;
  });
  turns(loop, 3);
  CHECK(calls == 0);
  s.send();
  REQUIRE(loop.process_events(kPoll) == 1);
  REQUIRE(loop.process_events(kPoll) == 1);
  CHECK(calls == 2);
  CHECK(fd_seen == s.near);
  CHECK(ready_seen == kReadable);
  REQUIRE(take_byte(s.near));
  CHECK(loop.process_events(kPoll) == 0);
}

TEST_CASE("event loop: adding one direction leaves the other alone, and so does removing it",
          "[ae]") {
  LibevLoop loop;
  Sockets s;
  std::string calls;
  loop.add_file_event(s.near, kReadable, [&](int, Mask) { calls += 'r'; });
  loop.add_file_event(s.near, kWritable, [&](int, Mask) { calls += 'w'; });
  CHECK(loop.file_events(s.near) == (kReadable | kWritable));
  s.send();
  turns(loop, 1);
  CHECK(calls == "rw");
  loop.remove_file_event(s.near, kReadable);
  CHECK(loop.file_events(s.near) == kWritable);
  turns(loop, 1);
  CHECK(calls == "rww");
  loop.add_file_event(s.near, kReadable, [&](int, Mask) { calls += 'R'; });
  loop.remove_file_event(s.near, kWritable);
  turns(loop, 1);
  CHECK(calls == "rwwR");
  loop.remove_file_event(s.near, kReadable | kWritable);
  loop.remove_file_event(s.near, kReadable);  // no-op
  loop.remove_file_event(12345, kReadable);   // no-op
  loop.remove_file_event(-1, kReadable);      // no-op
  CHECK(loop.file_events(s.near) == ae::kNone);
  CHECK(loop.file_events(-1) == ae::kNone);
  turns(loop, 2);
  CHECK(calls == "rwwR");
}

TEST_CASE("event loop: one handler may serve both directions", "[ae]") {
  LibevLoop loop;
  Sockets s;
  std::string calls;
  loop.add_file_event(s.near, kReadable | kWritable,
                      [&](int, Mask ready) { calls += ready == kReadable ? 'r' : 'w'; });
  s.send();
  CHECK(loop.process_events(kPoll) == 2);
  CHECK(calls == "rw");
}

TEST_CASE("event loop: a barrier runs the write handler before the read handler", "[ae]") {
  LibevLoop loop;
  Sockets s;
  std::string calls;
  s.send();
  loop.add_file_event(s.near, kReadable, [&](int, Mask) { calls += 'r'; });
  loop.add_file_event(s.near, kWritable | kBarrier, [&](int, Mask) { calls += 'w'; });
  CHECK(loop.file_events(s.near) == (kReadable | kWritable | kBarrier));
  turns(loop, 1);
  CHECK(calls == "wr");
  SECTION("it goes when the write handler is set without it") {
    loop.add_file_event(s.near, kWritable, [&](int, Mask) { calls += 'w'; });
    turns(loop, 1);
    CHECK(calls == "wrrw");
  }
  SECTION("it goes with the write handler") {
    loop.remove_file_event(s.near, kWritable);
    CHECK(loop.file_events(s.near) == kReadable);
  }
  SECTION("it stays when the read handler is replaced") {
    loop.add_file_event(s.near, kReadable, [&](int, Mask) { calls += 'R'; });
    turns(loop, 1);
    CHECK(calls == "wrwR");
  }
}

TEST_CASE("event loop: a mistake in add_file_event throws and changes nothing", "[ae]") {
  LibevLoop loop;
  Sockets s;
  const auto handler = [](int, Mask) {};
  CHECK_THROWS_AS(loop.add_file_event(-1, kReadable, handler), ae::LoopError);
  CHECK_THROWS_AS(loop.add_file_event(s.near, ae::kNone, handler), ae::LoopError);
  CHECK_THROWS_AS(loop.add_file_event(s.near, kBarrier, handler), ae::LoopError);
  CHECK_THROWS_AS(loop.add_file_event(s.near, kReadable, nullptr), ae::LoopError);
  CHECK(loop.file_events(s.near) == ae::kNone);
  CHECK_THROWS_AS(loop.add_file_event(2'000'000'000, kReadable, handler), std::system_error);
}

TEST_CASE("event loop: the handler of a closed descriptor is told once, and then it has no events",
          "[ae][hostile]") {
  LibevLoop loop;
  std::optional<Sockets> s(std::in_place);
  int calls = 0;
  int error = 0;
  const int fd = s->near;
  loop.add_file_event(fd, kReadable, [&](int its_fd, Mask) {
    ++calls;
    char byte = 0;
    error = ::read(its_fd, &byte, 1) < 0 ? errno : 0;
  });
  const bool known_to_the_kernel = GENERATE(false, true);
  if (known_to_the_kernel) {
    turns(loop, 1);
    loop.add_file_event(fd, kWritable, [&](int, Mask) {});  // so that libev looks at it again
  }
  s.reset();  // against the rule: the events are still there
  REQUIRE(runs_until(loop, [&] { return calls > 0; }));
  CHECK(error == EBADF);
  CHECK(loop.file_events(fd) == ae::kNone);
  turns(loop, 3);
  CHECK(calls == 1);
}

TEST_CASE("event loop: a regular file is always ready", "[ae]") {
  LibevLoop loop;
  const int fd = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  REQUIRE(fd >= 0);
  int calls = 0;
  loop.add_file_event(fd, kReadable, [&](int, Mask) { ++calls; });
  REQUIRE(runs_until(loop, [&] { return calls == 3; }));
  loop.remove_file_event(fd, kReadable);
  turns(loop, 2);
  CHECK(calls == 3);
  ::close(fd);
}

TEST_CASE("event loop: end of stream and reset are readable", "[ae]") {
  LibevLoop loop;
  Sockets s;
  bool ended = false;
  loop.add_file_event(s.near, kReadable, [&](int fd, Mask) {
    char byte = 0;
    ended = ::read(fd, &byte, 1) == 0;
    loop.remove_file_event(fd, kReadable);
  });
  ::close(std::exchange(s.far, -1));
  REQUIRE(runs_until(loop, [&] { return ended; }));
}

TEST_CASE("event loop: a handler may remove its own events and close its file", "[ae][lifetime]") {
  LibevLoop loop;
  Sockets s;
  s.send();
  std::string calls;
  const auto close = [&](char which) {
    calls += which;
    loop.remove_file_event(s.near, kReadable | kWritable);
    s.close_near();
  };
  loop.add_file_event(s.near, kReadable, [&](int, Mask) { close('r'); });
  loop.add_file_event(s.near, kWritable, [&](int, Mask) { close('w'); });
  turns(loop, 3);
  CHECK(calls == "r");  // the write handler was due in the same iteration
}

TEST_CASE("event loop: what a handler owns lives until it returns, even if it removes itself",
          "[ae][lifetime]") {
  LibevLoop loop;
  Sockets s;
  s.send();
  const auto owned = std::make_shared<int>(7);
  std::weak_ptr<int> seen = owned;
  int value = 0;
  loop.add_file_event(s.near, kReadable, [&loop, &seen, &value, own = owned](int fd, Mask) {
    loop.remove_file_event(fd, kReadable);
    value = seen.use_count() > 0 ? *own : -1;
  });
  REQUIRE(owned.use_count() == 2);
  turns(loop, 1);
  CHECK(value == 7);
  CHECK(owned.use_count() == 1);
}

TEST_CASE("event loop: a handler that replaces itself is used from the next call on", "[ae]") {
  LibevLoop loop;
  Sockets s;
  s.send();
  std::string calls;
  loop.add_file_event(s.near, kReadable, [&](int fd, Mask) {
    loop.add_file_event(fd, kReadable, [&](int, Mask) { calls += 'b'; });
    calls += 'a';
  });
  turns(loop, 3);
  CHECK(calls == "abb");
}

TEST_CASE("event loop: a handler that another one removes does not run, though it was due",
          "[ae][lifetime]") {
  LibevLoop loop;
  Sockets a;
  Sockets b;
  a.send();
  b.send();
  int calls = 0;
  const auto first_kills_other = [&](int fd, Mask) {
    ++calls;
    Sockets& other = fd == a.near ? b : a;
    loop.remove_file_event(other.near, kReadable);
    other.close_near();
  };
  loop.add_file_event(a.near, kReadable, first_kills_other);
  loop.add_file_event(b.near, kReadable, first_kills_other);
  turns(loop, 1);
  CHECK(calls == 1);
}

TEST_CASE("event loop: an event does not reach the new owner of a descriptor that was closed",
          "[ae][lifetime]") {
  LibevLoop loop;
  Sockets a;
  Sockets b;
  a.send();
  b.send();
  Sockets quiet;
  int stale = 0;
  int fresh_events = 0;
  int reused = -1;
  bool expect_event = false;
  // Both are due. The first takes the other's number for a quiet file of its own.
  const auto take_over = [&](int fd, Mask) {
    Sockets& other = fd == a.near ? b : a;
    loop.remove_file_event(fd, kReadable);
    loop.remove_file_event(other.near, kReadable);
    REQUIRE(::dup2(quiet.near, other.near) == other.near);
    reused = other.near;
    loop.add_file_event(reused, kReadable,
                        [&](int, Mask) { ++(expect_event ? fresh_events : stale); });
  };
  loop.add_file_event(a.near, kReadable, take_over);
  loop.add_file_event(b.near, kReadable, take_over);
  turns(loop, 5);
  REQUIRE(reused >= 0);
  CHECK(stale == 0);
  expect_event = true;
  quiet.send();
  turns(loop, 1);
  CHECK(fresh_events == 1);
}

TEST_CASE("event loop: a write event does not survive its read handler closing and reopening",
          "[ae][lifetime]") {
  LibevLoop loop;
  Sockets s;
  Sockets other;
  s.send();
  int turn = 0;
  int read_turn = 0;
  int write_turn = 0;
  loop.add_after_sleep([&] { ++turn; });
  loop.add_file_event(s.near, kWritable, [](int, Mask) { FAIL("it was removed"); });
  loop.add_file_event(s.near, kReadable, [&](int fd, Mask) {
    read_turn = turn;
    loop.remove_file_event(fd, kReadable | kWritable);
    REQUIRE(::dup2(other.near, fd) == fd);
    loop.add_file_event(fd, kWritable, [&](int, Mask) {
      if (write_turn == 0) write_turn = turn;
    });
  });
  turns(loop, 3);
  CHECK(read_turn == 1);
  CHECK(write_turn == 2);
}

TEST_CASE("event loop: interest that changes in every iteration starves nobody", "[ae]") {
  LibevLoop loop;
  Sockets a;
  Sockets b;
  std::array<int, 2> calls{};
  a.send();
  b.send();
  // Each asks for and takes back the other's write event, as a proxy does.
  loop.add_file_event(a.near, kReadable, [&](int, Mask) {
    ++calls[0];
    loop.add_file_event(b.near, kWritable, [](int, Mask) {});
    loop.remove_file_event(b.near, kWritable);
  });
  loop.add_file_event(b.near, kReadable, [&](int, Mask) {
    ++calls[1];
    loop.add_file_event(a.near, kWritable, [](int, Mask) {});
    loop.remove_file_event(a.near, kWritable);
  });
  turns(loop, 10);
  CHECK(calls[0] == 10);
  CHECK(calls[1] == 10);
}

TEST_CASE("event loop: one busy file and a thousand quiet ones are each served once an iteration",
          "[ae]") {
  LibevLoop loop;
  Sockets busy;
  std::vector<std::unique_ptr<Sockets>> quiet;
  std::size_t heard = 0;
  std::size_t chatter = 0;
  busy.send();
  loop.add_file_event(busy.near, kReadable, [&](int, Mask) { ++chatter; });  // never empties it
  for (int i = 0; i < 300; ++i) {
    quiet.push_back(std::make_unique<Sockets>());
    loop.add_file_event(quiet.back()->near, kReadable, [&](int fd, Mask) {
      ++heard;
      take_byte(fd);
    });
  }
  turns(loop, 1);
  for (const auto& one : quiet) one->send();
  chatter = 0;
  REQUIRE(runs_until(loop, [&] { return heard == quiet.size(); }));
  CHECK(chatter <= 1 + quiet.size() / 64);  // libev asks the kernel for 64 events at first
}

// --- time events ---------------------------------------------------------------------------------

TEST_CASE("event loop: a timer is never early and runs as often as it says", "[ae]") {
  LibevLoop loop;
  std::vector<steady_clock::time_point> calls;
  const auto start = steady_clock::now();
  const ae::TimerId id = loop.add_time_event(5ms, [&]() -> ae::Duration {
    calls.push_back(steady_clock::now());
    return calls.size() < 3 ? ae::Duration(2ms) : kNoMore;
  });
  CHECK(id != 0);
  REQUIRE(runs_until(loop, [&] { return calls.size() == 3; }));
  CHECK(calls[0] - start >= 5ms);
  CHECK(calls[1] - calls[0] >= 2ms);
  CHECK(calls[2] - calls[1] >= 2ms);
  turns(loop, 3);
  CHECK(calls.size() == 3);
  CHECK_FALSE(loop.remove_time_event(id));
}

TEST_CASE("event loop: a timer that a slow handler adds is not early", "[ae]") {
  LibevLoop loop;
  steady_clock::time_point added;
  steady_clock::time_point fired;
  loop.add_time_event(0ms, [&] {
    const auto until = steady_clock::now() + 30ms;
    while (steady_clock::now() < until) {
    }
    added = steady_clock::now();
    loop.add_time_event(10ms, [&] {
      fired = steady_clock::now();
      return kNoMore;
    });
    return kNoMore;
  });
  REQUIRE(runs_until(loop, [&] { return fired != steady_clock::time_point(); }));
  CHECK(fired - added >= 10ms);
}

TEST_CASE("event loop: timers with the same delay run in the order they were added", "[ae]") {
  LibevLoop loop;
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) {
    loop.add_time_event(1ms, [&order, i] {
      order.push_back(i);
      return kNoMore;
    });
  }
  REQUIRE(runs_until(loop, [&] { return order.size() == 100; }));
  CHECK(std::is_sorted(order.begin(), order.end()));
}

TEST_CASE("event loop: a negative delay counts as none, the longest one as never", "[ae]") {
  LibevLoop loop;
  int calls = 0;
  loop.add_time_event(-5s,
                      [&]() -> ae::Duration { return ++calls < 3 ? ae::Duration(-1) : kNoMore; });
  loop.add_time_event(ae::Duration::max(), [&] {
    FAIL("too early");
    return kNoMore;
  });
  REQUIRE(runs_until(loop, [&] { return calls == 3; }));
}

TEST_CASE("event loop: a removed timer does not run", "[ae][lifetime]") {
  LibevLoop loop;
  int calls = 0;
  ae::TimerId id = 0;
  SECTION("before it is due") {
    id = loop.add_time_event(0ms, [&] { return ++calls, kNoMore; });
    CHECK(loop.remove_time_event(id));
    CHECK_FALSE(loop.remove_time_event(id));
  }
  SECTION("by another one that is due with it") {
    ae::TimerId ids[2];
    for (int i : {0, 1}) {
      ids[i] = loop.add_time_event(0ms, [&, i] {
        ++calls;
        CHECK(loop.remove_time_event(ids[1 - i]));
        return kNoMore;
      });
    }
    turns(loop, 3);
    CHECK(calls == 1);
    calls = 0;
  }
  SECTION("from its own handler, whatever that returns") {
    id = loop.add_time_event(0ms, [&] {
      CHECK(loop.remove_time_event(id));
      CHECK_FALSE(loop.remove_time_event(id));
      return ae::Duration::zero();
    });
  }
  CHECK_FALSE(loop.remove_time_event(0));
  CHECK_FALSE(loop.remove_time_event(987654));
  turns(loop, 3);
  CHECK(calls == 0);
}

TEST_CASE("event loop: ids of timers and hooks are not reused", "[ae]") {
  LibevLoop loop;
  std::set<std::uint64_t> timers;
  std::set<std::uint64_t> hooks;
  for (int i = 0; i < 100; ++i) {
    const auto timer = loop.add_time_event(1h, [] { return kNoMore; });
    CHECK(timers.insert(timer).second);
    loop.remove_time_event(timer);
    const auto hook = i % 2 == 0 ? loop.add_before_sleep([] {}) : loop.add_after_sleep([] {});
    CHECK(hooks.insert(hook).second);
    loop.remove_hook(hook);
  }
  CHECK(timers.count(0) == 0);
  CHECK(hooks.count(0) == 0);
  CHECK_THROWS_AS(loop.add_time_event(1s, nullptr), ae::LoopError);
  CHECK_THROWS_AS(loop.add_before_sleep(nullptr), ae::LoopError);
  CHECK_THROWS_AS(loop.add_after_sleep(nullptr), ae::LoopError);
}

TEST_CASE("event loop: a timer that is always due does not starve files or other timers", "[ae]") {
  LibevLoop loop;
  Sockets s;
  int ticks = 0;
  int reads = 0;
  int others = 0;
  loop.add_time_event(0ms, [&] { return ++ticks, ae::Duration::zero(); });
  loop.add_time_event(1ms, [&] { return ++others, ae::Duration(1ms); });
  loop.add_file_event(s.near, kReadable, [&](int, Mask) { ++reads; });
  s.send();
  REQUIRE(runs_until(loop, [&] { return reads >= 100 && others >= 3; }));
  CHECK(ticks >= 50);
  CHECK(ticks <= reads + 2);  // at most once in an iteration
}

TEST_CASE("event loop: a hundred thousand timers due at once each run once, with I/O in between",
          "[ae]") {
  LibevLoop loop;
  Sockets s;
  constexpr int kTimers = 100'000;
  std::vector<unsigned char> fired(kTimers);
  int total = 0;
  int since_read = 0;
  int longest = 0;
  s.send();
  loop.add_file_event(s.near, kReadable, [&](int, Mask) { since_read = 0; });
  for (int i = 0; i < kTimers; ++i) {
    loop.add_time_event(0ms, [&, i] {
      ++fired[static_cast<std::size_t>(i)];
      ++total;
      longest = std::max(longest, ++since_read);
      return kNoMore;
    });
  }
  REQUIRE(runs_until(loop, [&] { return total >= kTimers; }));
  turns(loop, 3);
  CHECK(total == kTimers);
  CHECK(std::count(fired.begin(), fired.end(), 1) == kTimers);
  CHECK(longest <= 1000);
}

// --- hooks ---------------------------------------------------------------------------------------

TEST_CASE("event loop: an iteration has the order that the header says", "[ae]") {
  LibevLoop loop;
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
  LibevLoop loop;
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
  LibevLoop loop;
  std::string journal;
  TestSource source(&journal);
  source.pending = 3;
  loop.add_source(source);
  loop.add_source(source);  // no-op
  // Nothing else could end these: each would sleep for ever if the source did not veto.
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
  LibevLoop loop;
  std::string journal;
  TestSource source(&journal);
  loop.add_source(source);
  loop.process_events(kPoll);
  loop.process_events(kDontWait);
  loop.process_events(static_cast<ae::Process>(0));  // waits for nothing, so it does not wait
  CHECK(journal == "sp sf sp sf sp sf ");
}

TEST_CASE("event loop: a source that arms and finds work vetoes the sleep", "[ae]") {
  LibevLoop loop;
  std::string journal;
  TestSource source(&journal);
  source.vetoes = 2;
  loop.add_source(source);
  loop.process_events(kFullIteration);
  loop.process_events(kFullIteration);
  CHECK(journal == "sp sf sa sp sf sa ");
}

TEST_CASE("event loop: what comes up while sources are armed vetoes the sleep", "[ae]") {
  LibevLoop loop;
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
  LibevLoop loop;
  std::string journal;
  TestSource first(&journal, '1');
  auto second = std::make_unique<TestSource>(&journal, '2');
  TestSource third(&journal, '3');
  loop.add_source(first);
  loop.add_source(*second);
  loop.add_source(third);
  loop.add_time_event(0ms, [] { return kNoMore; });
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

TEST_CASE("event loop: it spins for the budget before it arms, and work ends the spin", "[ae]") {
  LibevLoop loop;
  std::string journal;
  TestSource source(&journal);
  loop.add_source(source);
  SECTION("work comes") {
    source.budget = 1h;
    source.on_poll = [&] {
      if (source.polls == 1000) source.pending = 1;
    };
    loop.process_events(kFullIteration);
    CHECK(source.polls == 1000);
    CHECK(loop.process_events(kPoll) == 1);
    CHECK(journal == "sp sf sp sf ");
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
    source.budget = 2ms;
    loop.add_time_event(5ms, [] { return kNoMore; });
    const auto start = steady_clock::now();
    steady_clock::time_point armed;
    source.on_arm = [&] { armed = steady_clock::now(); };
    loop.process_events(kFullIteration);
    CHECK(source.polls > 1);
    CHECK(armed - start >= 2ms);
    CHECK(journal == "sp sf sa ");
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

// --- running -------------------------------------------------------------------------------------

TEST_CASE("event loop: run() goes on until stop(), with nothing to wait for too", "[ae]") {
  LibevLoop loop;
  int timers = 0;
  loop.add_time_event(1ms, [&] {
    ++timers;
    loop.add_time_event(1ms, [&] {
      ++timers;
      loop.stop();
      return kNoMore;
    });
    return kNoMore;  // for a while a new timer is all there is
  });
  loop.run();
  CHECK(timers == 2);
  loop.add_before_sleep([&] { loop.stop(); });
  loop.run();  // no watcher at all
}

TEST_CASE("event loop: stop() before run() ends that run() at once, and only that", "[ae]") {
  LibevLoop loop;
  int calls = 0;
  loop.add_time_event(0ms, [&] {
    ++calls;
    loop.stop();
    return kNoMore;
  });
  loop.stop();
  loop.run();
  CHECK(calls == 0);
  loop.run();
  CHECK(calls == 1);
}

TEST_CASE("event loop: stop() lets the iteration end, with the flush of what was written", "[ae]") {
  LibevLoop loop;
  std::string journal;
  TestSource source(&journal);
  loop.add_source(source);
  Sockets s;
  s.send();
  loop.add_before_sleep([&] { journal += "b "; });
  const auto expect = [&](const char* from_where, const std::string& rest) {
    INFO(from_where);
    CHECK(journal == rest);
  };
  SECTION("from a file handler") {
    loop.add_file_event(s.near, kReadable, [&](int, Mask) {
      loop.stop();
      journal.clear();
    });
    loop.run();
    expect("file", "sp b sf ");
  }
  SECTION("from a hook") {
    loop.add_before_sleep([&] { loop.stop(); });
    loop.run();
    expect("before_sleep", "sp b sf ");
  }
  SECTION("from an after_sleep hook") {
    source.vetoes = 1;
    loop.add_after_sleep([&] {
      loop.stop();
      journal.clear();
    });
    loop.run();
    expect("after_sleep", "sp b sf ");
  }
  SECTION("from a source") {
    source.on_arm = [&] { loop.stop(); };
    loop.run();
    expect("arm", "sp b sf sa ");
  }
}

TEST_CASE("event loop: running it from inside a handler is refused", "[ae]") {
  LibevLoop loop;
  int refused = 0;
  const auto try_it = [&] {
    try {
      loop.run();
    } catch (const ae::LoopError&) {
      ++refused;
    }
    try {
      loop.process_events(kPoll);
    } catch (const ae::LoopError&) {
      ++refused;
    }
  };
  Sockets s;
  s.send();
  TestSource source(nullptr);
  source.on_flush = try_it;
  loop.add_source(source);
  loop.add_file_event(s.near, kReadable, [&](int fd, Mask) {
    take_byte(fd);
    try_it();
  });
  loop.add_time_event(0ms, [&] { return try_it(), kNoMore; });
  loop.add_before_sleep(try_it);
  loop.add_after_sleep(try_it);
  loop.post(try_it);
  loop.destroy_later(thing(try_it));
  loop.process_events(kPoll);
  CHECK(refused == 2 * 7);
}

TEST_CASE("event loop: process_events() does only what its flags say", "[ae]") {
  LibevLoop loop;
  Sockets s;
  s.send();
  std::string journal;
  loop.add_file_event(s.near, kReadable, [&](int, Mask) { journal += 'f'; });
  loop.add_before_sleep([&] { journal += 'b'; });
  loop.add_after_sleep([&] { journal += 'a'; });
  loop.add_time_event(0ms, [&] { return journal += 't', kNoMore; });

  CHECK(loop.process_events(kFileEvents | kDontWait) == 1);
  CHECK(journal == "f");
  journal.clear();
  CHECK(loop.process_events(kFileEvents) == 1);  // the timer is due, and waits
  CHECK(journal == "f");
  journal.clear();
  CHECK(loop.process_events(kTimeEvents) == 1);
  CHECK(journal == "t");
  journal.clear();
  CHECK(loop.process_events(kTimeEvents | kDontWait | ae::kCallBeforeSleep) == 0);
  CHECK(journal == "b");
  journal.clear();
  CHECK(loop.process_events(kFileEvents | kDontWait | ae::kCallAfterSleep) == 1);
  CHECK(journal == "af");
  journal.clear();
  CHECK(loop.process_events(static_cast<ae::Process>(0)) == 0);
  CHECK(journal.empty());
  CHECK(loop.process_events(kFullIteration) == 1);
  CHECK(journal == "baf");
}

TEST_CASE("event loop: process_events() counts file, time and posted handlers and sources' work",
          "[ae]") {
  LibevLoop loop;
  Sockets s;
  s.send();
  TestSource source(nullptr);
  source.pending = 5;
  loop.add_source(source);
  loop.add_file_event(s.near, kReadable | kWritable, [](int, Mask) {});
  loop.add_time_event(0ms, [] { return kNoMore; });
  loop.post([] {});
  CHECK(loop.process_events(kPoll) == 1 + 2 + 1 + 1);
}

// --- exceptions ----------------------------------------------------------------------------------

TEST_CASE("event loop: what a handler throws leaves through run(), and the loop stays usable",
          "[ae]") {
  const bool by_run = GENERATE(true, false);
  LibevLoop loop;
  Sockets s;
  TestSource source(nullptr);
  bool armed = true;  // throw once
  const auto oops = [&] {
    if (std::exchange(armed, false)) throw Oops{1};
  };
  SECTION("file event") {
    s.send();
    loop.add_file_event(s.near, kReadable, [&](int fd, Mask) {
      oops();
      take_byte(fd);
    });
  }
  SECTION("time event") {
    loop.add_time_event(0ms, [&] { return oops(), ae::Duration(1h); });
  }
  SECTION("post") { loop.post(oops); }
  SECTION("before_sleep") { loop.add_before_sleep(oops); }
  SECTION("after_sleep") {
    loop.add_after_sleep(oops);
    loop.post([] {});
  }
  SECTION("process_pending") {
    source.on_process = oops;
    loop.add_source(source);
  }
  SECTION("flush") {
    source.on_flush = oops;
    loop.add_source(source);
  }
  SECTION("arm") {
    source.on_arm = oops;
    loop.add_source(source);
  }
  if (by_run) {
    CHECK_THROWS_AS(loop.run(), Oops);
  } else {
    CHECK_THROWS_AS(loop.process_events(kFullIteration), Oops);
  }
  CHECK_FALSE(armed);
  CHECK_FALSE(loop.in_handler());
  CHECK_FALSE(loop.take_exception());
  bool alive = false;
  loop.add_time_event(1ms, [&] {
    alive = true;
    loop.stop();
    return kNoMore;
  });
  loop.run();
  CHECK(alive);
}

TEST_CASE("event loop: when a handler throws, the others of its iteration run in the next one",
          "[ae]") {
  LibevLoop loop;
  Sockets a;
  Sockets b;
  a.send();
  b.send();
  bool thrown = false;
  std::string calls;
  const auto handler = [&](const char* name) {
    if (!std::exchange(thrown, true)) throw Oops{2};
    calls += name;
  };
  loop.add_file_event(a.near, kReadable, [&](int fd, Mask) { handler("f"), take_byte(fd); });
  loop.add_file_event(b.near, kReadable, [&](int fd, Mask) { handler("f"), take_byte(fd); });
  loop.add_time_event(0ms, [&] { return handler("t"), kNoMore; });
  loop.post([&] { handler("p1"); });
  loop.post([&] { handler("p2"); });
  CHECK_THROWS_AS(loop.process_events(kPoll), Oops);
  CHECK(calls.empty());
  loop.process_events(kPoll);
  CHECK(calls == "ffp1p2t");
  turns(loop, 2);
  CHECK(calls == "ffp1p2t");
}

TEST_CASE("event loop: a post or a timer that throws is gone, the ones behind it are not", "[ae]") {
  LibevLoop loop;
  std::string calls;
  loop.post([&] {
    calls += 'a';
    throw Oops{3};
  });
  loop.post([&] { calls += 'b'; });
  loop.post([&] {
    calls += 'c';
    throw Oops{3};
  });
  for (char name : {'1', '2'}) {
    loop.add_time_event(0ms, [&, name]() -> ae::Duration {
      calls += name;
      throw Oops{4};
    });
  }
  int thrown = 0;
  for (int i = 0; i < 10; ++i) {
    try {
      loop.process_events(kPoll);
    } catch (const Oops&) {
      ++thrown;
    }
  }
  CHECK(thrown == 4);
  CHECK(calls == "abc12");
}

// --- lifetime ------------------------------------------------------------------------------------

TEST_CASE("event loop: a deferred object dies when no handler is on the stack", "[ae][lifetime]") {
  LibevLoop loop;
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
  loop.process_events(kFullIteration);  // does not sleep on what the destructor deferred
  CHECK(journal == "handler first second ");
  loop.process_events(kFullIteration | kDontWait);
  CHECK(journal == "handler first second from-dtor ");
}

TEST_CASE("event loop: it does not sleep on objects that hooks and sources deferred",
          "[ae][lifetime]") {
  LibevLoop loop;
  bool dead = false;
  bool done = false;
  loop.add_before_sleep([&] {
    if (!std::exchange(done, true)) loop.destroy_later(thing([&] { dead = true; }));
  });
  loop.process_events(kFullIteration);  // returns: there is work
  CHECK_FALSE(dead);
  loop.process_events(kPoll);
  CHECK(dead);
}

TEST_CASE("event loop: with it die loop locals, newest first, and everything deferred",
          "[ae][lifetime]") {
  std::string journal;
  const int key_a = 0;
  const int key_b = 0;
  std::optional<LibevLoop> loop(std::in_place);
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
  for (int i = 0; i < 100; ++i) loop->local(&journal + i);  // references stay valid
  CHECK(&a == &loop->local(&key_a));
  loop->destroy_later(thing([&] { journal += "deferred "; }));
  loop->post([&] { journal += "post "; });
  loop.reset();
  CHECK(journal == "post b a deferred deferred-late deferred-last ");
}

TEST_CASE("event loop: it may die with events, timers and hooks whose handlers own things",
          "[ae][lifetime]") {
  std::optional<LibevLoop> loop(std::in_place);
  Sockets s;
  // Each, as it dies, takes back its own registration and defers an object.
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
  loop.reset();
  CHECK(dead == 3);
  CHECK(destroyed == 2);
}

TEST_CASE("event loop: now() stands still inside an iteration and never goes back", "[ae]") {
  LibevLoop loop;
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

TEST_CASE("event loop: in_handler() is true in handlers, hooks and sources, and nowhere else",
          "[ae]") {
  LibevLoop loop;
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

TEST_CASE("event loop: without descriptors it throws and leaves nothing behind", "[ae][hostile]") {
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const auto before = open_descriptors();
  const int next = ::dup(0);  // the lowest number that is free
  ::close(next);
  for (rlim_t spare : {0u, 1u}) {
    rlimit low = limit;
    low.rlim_cur = static_cast<rlim_t>(next) + spare;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
    int error = 0;
    try {
      LibevLoop loop;
    } catch (const std::system_error& caught) {
      error = caught.code().value();
    }
    ::setrlimit(RLIMIT_NOFILE, &limit);
    CHECK(error == EMFILE);
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("event loop: libev's environment variables do not reach it", "[ae][hostile]") {
  ::setenv("LIBEV_FLAGS", "1", 1);  // select
  LibevLoop loop;
  ::unsetenv("LIBEV_FLAGS");
  CHECK(ev_backend(loop.native()) == (ev_recommended_backends() & EVBACKEND_EPOLL));
}

TEST_CASE("event loop: after fork() the child has a loop of its own, and the parent its old one",
          "[ae]") {
  LibevLoop loop;
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
      loop.after_fork();
      loop.remove_file_event(s.near, kReadable);
      int posted = 0;
      loop.post([&] { ++posted; });
      write_byte(kept.far);
      fine = runs_until(loop, [&] { return reads == 10 && posted == 1; });
    } else {
      loop.~LibevLoop();
      new (&loop) LibevLoop();
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
  LibevLoop loop;
  Sockets s;
  loop.add_file_event(s.near, kReadable, [](int, Mask) {});
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
