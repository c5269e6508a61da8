// What an event costs through ae::LibevLoop and through bare libev, in the same process, taking
// turns, so that whatever else the machine does meets both. Prints nanoseconds of processor time
// for each event (the best round of each, which is the one least disturbed), their ratio, and the
// median of the rounds' ratios.
//
//   g++ -std=c++20 -O2 -I. bench/ae_loop_bench.cc build/libaeconn.a -lev -pthread

#include <ev.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "ae/libev_loop.h"

namespace {

constexpr int kRounds = 201;
constexpr std::uint64_t kEventsInRound = 5'000;

std::uint64_t g_events = 0;

struct Sockets {
  Sockets() {
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) != 0) std::abort();
  }
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;
  ~Sockets() {
    for (const int fd : ends) ::close(fd);
  }
  void put() const {
    if (::write(ends[1], "x", 1) != 1) std::abort();
  }
  void pass_on() const {
    char byte = 0;
    if (::read(ends[0], &byte, 1) != 1 || ::write(ends[1], &byte, 1) != 1) std::abort();
  }
  std::array<int, 2> ends{};
};

using Crowd = std::vector<std::unique_ptr<Sockets>>;

Crowd crowd(std::size_t size, bool ready) {
  Crowd all;
  for (std::size_t i = 0; i < size; ++i) {
    all.push_back(std::make_unique<Sockets>());
    if (ready) all.back()->put();
  }
  return all;
}

// One side of a comparison: sets itself up, and then runs iterations.
struct Side {
  virtual ~Side() = default;
  virtual void iterate() = 0;
};

struct Bare : Side {
  Bare() : loop(ev_loop_new(EVFLAG_NOENV)) {}
  Bare(const Bare&) = delete;
  Bare& operator=(const Bare&) = delete;
  ~Bare() override { ev_loop_destroy(loop); }
  void iterate() override { ev_run(loop, EVRUN_ONCE); }
  struct ev_loop* loop;
};

struct Ours : Side {
  void iterate() override { loop.process_events(ae::kFullIteration); }
  ae::LibevLoop loop;
};

// --- ready files whose handlers do nothing -------------------------------------------------------

struct BareFiles : Bare {
  BareFiles(std::size_t ready, std::size_t idle, bool echo)
      : files(crowd(ready, true)), quiet(crowd(idle, false)), watchers(ready + idle) {
    for (std::size_t i = 0; i < watchers.size(); ++i) {
      Sockets& one = i < ready ? *files[i] : *quiet[i - ready];
      const auto count = [](struct ev_loop*, ev_io*, int) { ++g_events; };
      const auto pass_on = [](struct ev_loop*, ev_io* w, int) {
        ++g_events;
        static_cast<Sockets*>(w->data)->pass_on();
      };
      if (echo) {
        ev_io_init(&watchers[i], pass_on, one.ends[0], EV_READ);
      } else {
        ev_io_init(&watchers[i], count, one.ends[0], EV_READ);
      }
      watchers[i].data = &one;
      ev_io_start(loop, &watchers[i]);
    }
  }
  ~BareFiles() override {
    for (ev_io& w : watchers) ev_io_stop(loop, &w);
  }
  Crowd files;
  Crowd quiet;
  std::vector<ev_io> watchers;
};

struct OurFiles : Ours {
  OurFiles(std::size_t ready, std::size_t idle, bool echo)
      : files(crowd(ready, true)), quiet(crowd(idle, false)) {
    for (const auto* all : {&files, &quiet}) {
      for (const auto& one : *all) {
        if (echo) {
          loop.add_file_event(one->ends[0], ae::kReadable, [sockets = one.get()](int, ae::Mask) {
            ++g_events;
            sockets->pass_on();
          });
        } else {
          loop.add_file_event(one->ends[0], ae::kReadable, [](int, ae::Mask) { ++g_events; });
        }
      }
    }
  }
  Crowd files;
  Crowd quiet;
};

// --- interest that changes with each event -------------------------------------------------------

struct BareToggle : Bare {
  BareToggle() {
    file.put();
    ev_io_init(
        &write, [](struct ev_loop*, ev_io*, int) {}, file.ends[0], EV_WRITE);
    ev_io_init(
        &read,
        [](struct ev_loop* its_loop, ev_io* w, int) {
          ++g_events;
          auto& self = *static_cast<BareToggle*>(w->data);
          if (ev_is_active(&self.write)) {
            ev_io_stop(its_loop, &self.write);
          } else {
            ev_io_start(its_loop, &self.write);
          }
        },
        file.ends[0], EV_READ);
    read.data = this;
    ev_io_start(loop, &read);
  }
  ~BareToggle() override {
    ev_io_stop(loop, &read);
    ev_io_stop(loop, &write);
  }
  Sockets file;
  ev_io read;
  ev_io write;
};

struct OurToggle : Ours {
  OurToggle() {
    file.put();
    loop.add_file_event(file.ends[0], ae::kReadable, [this](int fd, ae::Mask) {
      ++g_events;
      if ((loop.file_events(fd) & ae::kWritable) != 0) {
        loop.remove_file_event(fd, ae::kWritable);
      } else {
        loop.add_file_event(fd, ae::kWritable, [](int, ae::Mask) {});
      }
    });
  }
  Sockets file;
};

// --- timers and posts ----------------------------------------------------------------------------

struct BareTimers : Bare {
  explicit BareTimers(std::size_t count) : timers(count) {
    for (ev_timer& timer : timers) {
      ev_timer_init(
          &timer,
          [](struct ev_loop* its_loop, ev_timer* w, int) {
            ++g_events;
            ev_now_update(its_loop);
            ev_timer_set(w, 0.0, 0.0);
            ev_timer_start(its_loop, w);
          },
          0.0, 0.0);
      ev_timer_start(loop, &timer);
    }
  }
  ~BareTimers() override {
    for (ev_timer& timer : timers) ev_timer_stop(loop, &timer);
  }
  std::vector<ev_timer> timers;
};

struct OurTimers : Ours {
  explicit OurTimers(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      loop.add_time_event(ae::Duration::zero(), [] {
        ++g_events;
        return ae::Duration::zero();
      });
    }
  }
};

// Bare libev has no queue: this is a wake-up, without a function to hand over.
struct BareAsync : Bare {
  BareAsync() {
    ev_async_init(&async, [](struct ev_loop* its_loop, ev_async* w, int) {
      ++g_events;
      ev_async_send(its_loop, w);
    });
    ev_async_start(loop, &async);
    ev_async_send(loop, &async);
  }
  ~BareAsync() override { ev_async_stop(loop, &async); }
  ev_async async;
};

struct OurPosts : Ours {
  OurPosts() { post(); }
  void post() {
    loop.post([this] {
      ++g_events;
      if (!over) post();
    });
  }
  ~OurPosts() override { over = true; }
  bool over = false;
};

// --- taking turns --------------------------------------------------------------------------------

double processor_nanoseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

double nanoseconds_per_event(Side& side) {
  g_events = 0;
  const double start = processor_nanoseconds();
  while (g_events < kEventsInRound) side.iterate();
  return (processor_nanoseconds() - start) / static_cast<double>(g_events);
}

void compare(const char* what, Side&& bare, Side&& ours) {
  std::vector<double> ratios;
  double best_bare = 1e18;
  double best_ours = 1e18;
  for (int round = 0; round < kRounds; ++round) {
    const bool bare_first = round % 2 == 0;
    const double first = nanoseconds_per_event(bare_first ? bare : ours);
    const double second = nanoseconds_per_event(bare_first ? ours : bare);
    const double one = bare_first ? first : second;
    const double two = bare_first ? second : first;
    if (round == 0) continue;  // warm-up
    ratios.push_back(two / one);
    best_bare = std::min(best_bare, one);
    best_ours = std::min(best_ours, two);
  }
  std::sort(ratios.begin(), ratios.end());
  std::printf("%-44s %10.1f %10.1f %8.3f %8.3f\n", what, best_bare, best_ours,
              best_ours / best_bare, ratios[ratios.size() / 2]);
}

}  // namespace

int main() {
  std::printf("%-44s %10s %10s %8s %8s\n", "ns for each event", "libev", "aeconn", "best",
              "median");
  compare("1 ready file, one event an iteration", BareFiles(1, 0, false), OurFiles(1, 0, false));
  compare("64 ready files", BareFiles(64, 0, false), OurFiles(64, 0, false));
  compare("1 ready file beside 400 idle ones", BareFiles(1, 400, false), OurFiles(1, 400, false));
  compare("echo of a byte, 1 socket", BareFiles(1, 0, true), OurFiles(1, 0, true));
  compare("echo of a byte, 64 sockets", BareFiles(64, 0, true), OurFiles(64, 0, true));
  compare("write interest on and off", BareToggle(), OurToggle());
  compare("1 timer, again and again", BareTimers(1), OurTimers(1));
  compare("100 timers, again and again", BareTimers(100), OurTimers(100));
  compare("post from the loop (libev: a wake-up)", BareAsync(), OurPosts());
}
