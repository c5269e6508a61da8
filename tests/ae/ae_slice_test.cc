// SPDX-License-Identifier: BSD-3-Clause
// EventLoop::has_time(): an iteration runs handlers for a bounded time, whatever their kind and
// number. The remaining handlers run first in the next iteration, so that none is starved, and the
// loop does not sleep before.
//
// Goal: with slow handlers of one kind due all the time, all other kinds run in each iteration, and
// those of the kind run in turn. Method: each handler takes longer than an iteration may; handlers
// are counted, time is not measured.

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <ev.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ae/core/loop_core.h"
#include "conn/kit/ready_list.h"
#include "tests/support/catch.h"
#include "tests/support/loop_kit.h"

using namespace loop_kit;

namespace {

constexpr std::size_t kMany = 4;

/// Computes for longer than an iteration's time slice, by any clock.
void compute() {
  const auto until = steady_clock::now() + 2 * ae::kSlice + 5ms;
  while (steady_clock::now() < until) {
  }
}

/// Slow handlers of one kind, all due all the time; records the order of their calls.
struct Crowd {
  void ran(std::size_t index) {
    order.push_back(index);
    compute();
  }
  /// Handlers left over run before those that become ready later, so none waits long. Those that
  /// have run become ready again in the kernel's order, so some may run more often.
  bool in_turn() const {
    std::vector<std::size_t> waited(kMany);
    for (const std::size_t each : order) {
      for (std::size_t& runs : waited) ++runs;
      waited[each] = 0;
      if (*std::max_element(waited.begin(), waited.end()) > 2 * kMany) return false;
    }
    return true;
  }
  std::vector<std::size_t> order;
};

struct Item final : conn::ReadyItem {
  std::size_t run_ready() override {
    list->push(*this);
    crowd->ran(index);
    return 1;
  }
  conn::ReadyList* list = nullptr;
  Crowd* crowd = nullptr;
  std::size_t index = 0;
};

/// Keeps the loop busy with one kind of handlers while it exists.
struct Busy {
  explicit Busy(ae::EventLoop& on) : loop(on) {}
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  virtual ~Busy() = default;
  ae::EventLoop& loop;
  Crowd crowd;
};

struct BusySockets final : Busy {
  explicit BusySockets(ae::EventLoop& on) : Busy(on) {
    for (std::size_t i = 0; i < kMany; ++i) {
      sockets[i].send();
      loop.add_file_event(sockets[i].near, kReadable, [this, i](int, Mask) { crowd.ran(i); });
    }
  }
  ~BusySockets() override {
    for (Sockets& each : sockets) loop.remove_file_event(each.near, kReadable);
  }
  std::array<Sockets, kMany> sockets;
};

struct BusyRegularFiles final : Busy {
  explicit BusyRegularFiles(ae::EventLoop& on) : Busy(on) {
    for (std::size_t i = 0; i < kMany; ++i) {
      fds.push_back(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
      loop.add_file_event(fds[i], kReadable, [this, i](int, Mask) { crowd.ran(i); });
    }
  }
  ~BusyRegularFiles() override {
    for (const int fd : fds) {
      loop.remove_file_event(fd, kReadable);
      ::close(fd);
    }
  }
  std::vector<int> fds;
};

struct BusyTimers final : Busy {
  explicit BusyTimers(ae::EventLoop& on) : Busy(on) {
    for (std::size_t i = 0; i < kMany; ++i)
      ids.push_back(loop.add_time_event(0ms, [this, i]() -> ae::Duration {
        crowd.ran(i);
        return 0ms;
      }));
  }
  ~BusyTimers() override {
    for (const ae::TimerId id : ids) loop.remove_time_event(id);
  }
  std::vector<ae::TimerId> ids;
};

struct BusyPosts final : Busy {
  explicit BusyPosts(ae::EventLoop& on) : Busy(on) {
    for (std::size_t i = 0; i < kMany; ++i) post(i);
  }
  ~BusyPosts() override { *over = true; }
  void post(std::size_t i) {
    loop.post([this, i, ended = over] {
      if (*ended) return;
      post(i);
      crowd.ran(i);
    });
  }
  std::shared_ptr<bool> over = std::make_shared<bool>(false);
};

struct BusyList final : Busy {
  explicit BusyList(ae::EventLoop& on) : Busy(on), list(on) {
    loop.add_source(list);
    for (std::size_t i = 0; i < kMany; ++i) {
      items[i].list = &list;
      items[i].crowd = &crowd;
      items[i].index = i;
      list.push(items[i]);
    }
  }
  ~BusyList() override { loop.remove_source(list); }
  conn::ReadyList list;
  std::array<Item, kMany> items;
};

const std::vector<std::string> kKinds{"sockets", "regular files", "timers", "posts", "a list"};

std::unique_ptr<Busy> make_busy(const std::string& kind, ae::EventLoop& loop) {
  if (kind == "sockets") return std::make_unique<BusySockets>(loop);
  if (kind == "regular files") return std::make_unique<BusyRegularFiles>(loop);
  if (kind == "timers") return std::make_unique<BusyTimers>(loop);
  if (kind == "posts") return std::make_unique<BusyPosts>(loop);
  return std::make_unique<BusyList>(loop);
}

/// One handler of each other kind, always due and quick.
struct Bystanders {
  explicit Bystanders(ae::EventLoop& on) : loop(on), source(nullptr) {
    socket.send();
    loop.add_file_event(socket.near, kReadable, [this](int, Mask) { ++files; });
    timer = loop.add_time_event(0ms, [this]() -> ae::Duration {
      ++timers;
      return 0ms;
    });
    source.on_process = [this] { ++processed; };
    source.on_flush = [this] { ++flushed; };
    loop.add_source(source);
  }
  Bystanders(const Bystanders&) = delete;
  Bystanders& operator=(const Bystanders&) = delete;
  ~Bystanders() {
    loop.remove_file_event(socket.near, kReadable);
    loop.remove_time_event(timer);
    loop.remove_source(source);
  }
  ae::EventLoop& loop;
  Sockets socket;
  TestSource source;
  ae::TimerId timer = 0;
  int files = 0, timers = 0, processed = 0, flushed = 0;
};

/// Runs enough iterations for each handler to run twice, and checks the results. `turn` makes one
/// iteration.
template <class Turn>
void everybody_has_a_turn(const std::string& kind, ae::EventLoop& loop, Turn turn) {
  const auto busy = make_busy(kind, loop);
  Bystanders others(loop);
  turn();  // registers the files with the kernel
  turn();
  busy->crowd.order.clear();
  others.files = others.timers = others.processed = others.flushed = 0;
  const int rounds = 2 * kMany + 4;
  for (int i = 0; i < rounds; ++i) turn();
  // A slow handler uses up the iteration. That is detected when the second one checks the time, if
  // the first did not.
  CHECK(busy->crowd.order.size() <= 2 * std::size_t(rounds) + 1);
  CHECK(busy->crowd.order.size() >= std::size_t(rounds) - 2);
  std::string order;
  for (const std::size_t each : busy->crowd.order) order += std::to_string(each);
  INFO("ran in this order: " << order);
  CHECK(busy->crowd.in_turn());
  CHECK(others.timers >= 2);
  CHECK(others.processed >= rounds);
  CHECK(others.flushed >= rounds);
  // The bystander of the same kind waits in the same queue; the other kinds are independent.
  CHECK(others.files >= (kind == "sockets" || kind == "regular files" ? 2 : rounds - 1));
  if (kind != "timers") CHECK(others.timers >= rounds - 1);
}

}  // namespace

TEST_CASE("event loop: slow handlers due at once leave all others their turn", "[ae]") {
  const auto kind = GENERATE(from_range(kKinds));
  CAPTURE(kind);
  AnyLoop loop;
  everybody_has_a_turn(kind, loop, [&] { loop.process_events(kPoll); });
}

TEST_CASE("borrowed loop: slow handlers due at once leave all others their turn", "[ae]") {
  const auto kind = GENERATE(from_range(kKinds));
  CAPTURE(kind);
  struct ev_loop* const host = ev_loop_new(EVFLAG_NOENV);
  {
    ae::LibevLoop loop(host);
    everybody_has_a_turn(kind, loop, [&] { ev_run(host, EVRUN_NOWAIT); });
  }
  ev_loop_destroy(host);
}

TEST_CASE("hosted loop: slow handlers due at once leave all others their turn", "[ae]") {
  const auto kind = GENERATE(from_range(kKinds));
  CAPTURE(kind);
  ae::EpollLoop loop;
  pollfd fd{loop.descriptor(), POLLIN, 0};
  everybody_has_a_turn(kind, loop, [&] {
    CHECK(::poll(&fd, 1, 0) == 1);  // it signals remaining work
    loop.dispatch();
  });
}

TEST_CASE("event loop: what an iteration had no time for is served before the loop sleeps",
          "[ae]") {
  const auto kind = GENERATE(from_range(kKinds));
  CAPTURE(kind);
  AnyLoop loop;
  const auto busy = make_busy(kind, loop);
  // Without kDontWait, and without events that would end a sleep.
  while (busy->crowd.order.size() < 2 * kMany) loop.process_events(kFullIteration);
  CHECK(busy->crowd.in_turn());
}

TEST_CASE("hosted loop: a nested turn has time of its own, however long its handler took", "[ae]") {
  ae::EpollLoop loop;
  (void)loop.descriptor();
  Sockets outer;
  BusySockets busy(loop);
  loop.dispatch();
  busy.crowd.order.clear();
  outer.send();
  std::size_t nested = 0;
  loop.add_file_event(outer.near, kReadable, [&](int fd, Mask) {
    take_byte(fd);
    for (std::size_t i = 0; i < 2 * kMany; ++i) {
      compute();
      nested += loop.dispatch();
    }
  });
  while (nested == 0) loop.dispatch();
  loop.remove_file_event(outer.near, kReadable);
  CHECK(nested >= kMany);
  CHECK(busy.crowd.in_turn());
}

TEST_CASE("event loop: a handler can ask whether its iteration has time for another", "[ae]") {
  AnyLoop loop;
  Sockets socket;
  socket.send();
  bool before = false;
  loop.add_file_event(socket.near, kReadable, [&](int, Mask) {
    before = loop.has_time();
    compute();
    CHECK_FALSE(loop.has_time());
  });
  turns(loop, 2);
  CHECK(before);
  loop.remove_file_event(socket.near, kReadable);
}
