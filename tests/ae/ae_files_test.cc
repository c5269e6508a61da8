// SPDX-License-Identifier: BSD-3-Clause
// Tests of event_loop.h: file events.

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

#include "tests/support/catch.h"
#include "tests/support/loop_kit.h"

using namespace loop_kit;

// --- file events ---------------------------------------------------------------------------------

TEST_CASE("event loop: a file handler is called again in each iteration while its file is ready",
          "[ae]") {
  AnyLoop loop;
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
  AnyLoop loop;
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
  AnyLoop loop;
  Sockets s;
  std::string calls;
  loop.add_file_event(s.near, kReadable | kWritable,
                      [&](int, Mask ready) { calls += ready == kReadable ? 'r' : 'w'; });
  s.send();
  CHECK(loop.process_events(kPoll) == 2);
  CHECK(calls == "rw");
}

TEST_CASE("event loop: a barrier runs the write handler before the read handler", "[ae]") {
  AnyLoop loop;
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
  SECTION("that the write handler goes meanwhile keeps the read handler from nothing") {
    calls.clear();
    loop.add_file_event(s.near, kWritable | kBarrier, [&](int fd, Mask) {
      calls += 'w';
      loop.remove_file_event(fd, kWritable);
    });
    turns(loop, 1);
    CHECK(calls == "wr");
  }
  SECTION("it goes with the last handler") {
    loop.remove_file_event(s.near, kWritable);
    loop.add_file_event(s.near, kReadable | kBarrier, [](int, Mask) {});
    CHECK(loop.file_events(s.near) == (kReadable | kBarrier));
    loop.remove_file_event(s.near, kReadable);
    CHECK(loop.file_events(s.near) == ae::kNone);
  }
  SECTION("it stays when the read handler is replaced") {
    loop.add_file_event(s.near, kReadable, [&](int, Mask) { calls += 'R'; });
    turns(loop, 1);
    CHECK(calls == "wrwR");
  }
}

TEST_CASE("event loop: a mistake in add_file_event throws and changes nothing", "[ae]") {
  AnyLoop loop;
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
  AnyLoop loop;
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
    loop.add_file_event(fd, kWritable, [&](int, Mask) {});  // so that libev checks it again
  }
  s.reset();  // a violation: the events still exist
  for (int i = 0; i < 3; ++i) loop.process_events(kTimeEvents | kDontWait);
  CHECK(calls == 0);
  REQUIRE(runs_until(loop, [&] { return calls > 0; }));
  CHECK(error == EBADF);
  CHECK(loop.file_events(fd) == ae::kNone);
  turns(loop, 3);
  CHECK(calls == 1);
}

TEST_CASE("event loop: a regular file is always ready", "[ae]") {
  AnyLoop loop;
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
  AnyLoop loop;
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

// A carrier over pipes watches for the end with it, while bytes are unread
// (docs/add-a-transport.md).
TEST_CASE("event loop: of a pipe's end, the opposite direction tells that the other end is gone",
          "[ae]") {
  AnyLoop loop;
  const bool writer_goes = GENERATE(false, true);
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  REQUIRE(::write(ends[1], "unread", 6) == 6);
  const int stays = ends[writer_goes ? 0 : 1], goes = ends[writer_goes ? 1 : 0];
  int calls = 0;
  loop.add_file_event(stays, writer_goes ? kWritable : kReadable, [&](int, Mask) { ++calls; });
  turns(loop, 3);
  CHECK(calls == 0);
  ::close(goes);
  turns(loop, 3);
  CHECK(calls == 3);
  loop.remove_file_event(stays, kReadable | kWritable);
  ::close(stays);
}

TEST_CASE("event loop: a handler may remove its own events and close its file", "[ae][lifetime]") {
  AnyLoop loop;
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
  AnyLoop loop;
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
  AnyLoop loop;
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
  AnyLoop loop;
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
  AnyLoop loop;
  Sockets a;
  Sockets b;
  a.send();
  b.send();
  Sockets quiet;
  int stale = 0;
  int fresh_events = 0;
  int reused = -1;
  bool expect_event = false;
  // Both are due. The first handler reuses the other's descriptor number for a file without events.
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

TEST_CASE("event loop: the second event does not survive the first handler closing and reopening",
          "[ae][lifetime]") {
  const bool barrier = GENERATE(false, true);
  const Mask first = barrier ? kWritable | kBarrier : kReadable;
  const Mask second = barrier ? kReadable : kWritable;
  AnyLoop loop;
  Sockets s;
  Sockets other;
  s.send();
  other.send();
  int turn = 0;
  int first_turn = 0;
  int second_turn = 0;
  loop.add_after_sleep([&] { ++turn; });
  loop.add_file_event(s.near, second, [](int, Mask) { FAIL("it was removed"); });
  loop.add_file_event(s.near, first, [&](int fd, Mask) {
    first_turn = turn;
    loop.remove_file_event(fd, kReadable | kWritable);
    REQUIRE(::dup2(other.near, fd) == fd);
    loop.add_file_event(fd, second | (barrier ? kBarrier : ae::kNone), [&](int, Mask) {
      if (second_turn == 0) second_turn = turn;
    });
  });
  turns(loop, 3);
  CHECK(first_turn == 1);
  CHECK(second_turn == 2);
}

TEST_CASE("event loop: interest that changes in every iteration starves nobody", "[ae]") {
  AnyLoop loop;
  Sockets a;
  Sockets b;
  std::array<int, 2> calls{};
  a.send();
  b.send();
  // Each adds and removes the other's write event, like a proxy.
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
  AnyLoop loop;
  Sockets busy;
  std::vector<std::unique_ptr<Sockets>> quiet;
  std::size_t heard = 0;
  std::size_t chatter = 0;
  busy.send();
  loop.add_file_event(busy.near, kReadable, [&](int, Mask) { ++chatter; });  // never reads the data
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
  CHECK(chatter <= 1 + quiet.size() / 64);  // libev initially asks for 64 events
}
