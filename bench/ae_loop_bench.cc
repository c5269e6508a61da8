// What ae::LibevLoop costs beside bare libev and bare epoll: events, timers, post(). All in one
// process and in turns, so that whatever else the machine does meets everybody.
//
//   build/bench/loop-bench [--json] [--rounds N]
//
// Figures are medians over the rounds, in nanoseconds of processor time for one event. Ratios are
// taken within each round; printed are their median and, in brackets, the least and the greatest.
// Bare epoll has no timers but one descriptor for each, so timers are compared with libev alone.
// Neither has a queue of functions: they get a vector behind a mutex, with an ev_async or an
// eventfd to wake the loop, as a program would write it.

#include <ev.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ae/libev_loop.h"

namespace {

constexpr std::size_t kEvents = 20'000;  // in one run of a side
constexpr std::size_t kTimers = 100'000;
constexpr std::size_t kIdle = 1'000;

void require(bool condition, const char* what) {
  if (condition) return;
  std::perror(what);
  std::exit(1);
}

/// One side of a comparison.
class Side {
 public:
  virtual ~Side() = default;
  virtual void prepare() {}             ///< before each run, not timed
  virtual void iterate() = 0;           ///< one iteration of the loop
  virtual void run(std::size_t events)  ///< timed
  {
    for (count = 0; count < events;) iterate();
  }
  std::size_t count = 0;
};

struct Ours : Side {
  void iterate() override { loop.process_events(ae::kFullIteration); }
  ae::LibevLoop loop;
};

struct Libev : Side {
  Libev() : loop(ev_loop_new(EVFLAG_NOENV)) { require(loop != nullptr, "ev_loop_new"); }
  Libev(const Libev&) = delete;
  Libev& operator=(const Libev&) = delete;
  ~Libev() override { ev_loop_destroy(loop); }
  void iterate() override { ev_run(loop, EVRUN_ONCE); }
  struct ev_loop* loop;
};

struct Handler {
  void (*call)(Handler&);
};

struct Epoll : Side {
  Epoll() : fd(::epoll_create1(EPOLL_CLOEXEC)) { require(fd >= 0, "epoll_create1"); }
  Epoll(const Epoll&) = delete;
  Epoll& operator=(const Epoll&) = delete;
  ~Epoll() override { ::close(fd); }
  void control(int operation, int of, std::uint32_t mask, Handler& handler) const {
    epoll_event event{};
    event.events = mask;
    event.data.ptr = &handler;
    require(::epoll_ctl(fd, operation, of, &event) == 0, "epoll_ctl");
  }
  void iterate() override {
    std::array<epoll_event, 64> events;
    const int ready = ::epoll_wait(fd, events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < ready; ++i) {
      auto& handler = *static_cast<Handler*>(events[static_cast<std::size_t>(i)].data.ptr);
      handler.call(handler);
    }
  }
  int fd;
};

// --- files ---------------------------------------------------------------------------------------

struct Sockets {
  Sockets() {
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0, "socketpair");
    require(::write(ends[1], "x", 1) == 1, "write");
  }
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;
  ~Sockets() {
    for (const int fd : ends) ::close(fd);
  }
  void echo() const {
    char byte = 0;
    require(::read(ends[0], &byte, 1) == 1 && ::write(ends[1], &byte, 1) == 1, "echo");
  }
  std::array<int, 2> ends{};
};

/// Descriptors of which no event ever comes.
struct Idle {
  explicit Idle(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      fds.push_back(::eventfd(0, EFD_NONBLOCK));
      require(fds.back() >= 0, "eventfd");
    }
  }
  Idle(const Idle&) = delete;
  Idle& operator=(const Idle&) = delete;
  ~Idle() {
    for (const int fd : fds) ::close(fd);
  }
  std::vector<int> fds;
};

struct Shape {
  std::size_t ready, idle;
  bool echo;
};

struct OurFiles : Ours {
  explicit OurFiles(Shape shape) : sockets(shape.ready), quiet(shape.idle) {
    for (const Sockets& one : sockets) {
      if (shape.echo) {
        loop.add_file_event(one.ends[0], ae::kReadable, [this, &one](int, ae::Mask) {
          ++count;
          one.echo();
        });
      } else {
        loop.add_file_event(one.ends[0], ae::kReadable, [this](int, ae::Mask) { ++count; });
      }
    }
    for (const int fd : quiet.fds) loop.add_file_event(fd, ae::kReadable, [](int, ae::Mask) {});
  }
  std::vector<Sockets> sockets;
  Idle quiet;
};

struct LibevFiles : Libev {
  struct Watcher : ev_io {
    LibevFiles* side;
    Sockets sockets;
  };
  explicit LibevFiles(Shape shape) : watchers(shape.ready), quiet(shape.idle), idle(shape.idle) {
    for (Watcher& one : watchers) {
      one.side = this;
      const auto count_it = [](struct ev_loop*, ev_io* w, int) {
        ++static_cast<Watcher*>(w)->side->count;
      };
      const auto echo = [](struct ev_loop*, ev_io* w, int) {
        ++static_cast<Watcher*>(w)->side->count;
        static_cast<Watcher*>(w)->sockets.echo();
      };
      ev_io* const watcher = &one;
      if (shape.echo) {
        ev_io_init(watcher, echo, one.sockets.ends[0], EV_READ);
      } else {
        ev_io_init(watcher, count_it, one.sockets.ends[0], EV_READ);
      }
      ev_io_start(loop, watcher);
    }
    for (std::size_t i = 0; i < idle.size(); ++i) {
      ev_io_init(
          &idle[i], [](struct ev_loop*, ev_io*, int) {}, quiet.fds[i], EV_READ);
      ev_io_start(loop, &idle[i]);
    }
  }
  ~LibevFiles() override {
    for (Watcher& one : watchers) ev_io_stop(loop, &one);
    for (ev_io& one : idle) ev_io_stop(loop, &one);
  }
  std::vector<Watcher> watchers;
  Idle quiet;
  std::vector<ev_io> idle;
};

struct EpollFiles : Epoll {
  struct Watcher : Handler {
    EpollFiles* side;
    Sockets sockets;
  };
  explicit EpollFiles(Shape shape) : watchers(shape.ready), quiet(shape.idle) {
    for (Watcher& one : watchers) {
      one.side = this;
      if (shape.echo) {
        one.call = [](Handler& handler) {
          ++static_cast<Watcher&>(handler).side->count;
          static_cast<Watcher&>(handler).sockets.echo();
        };
      } else {
        one.call = [](Handler& handler) { ++static_cast<Watcher&>(handler).side->count; };
      }
      control(EPOLL_CTL_ADD, one.sockets.ends[0], EPOLLIN, one);
    }
    for (const int fd_of : quiet.fds) control(EPOLL_CTL_ADD, fd_of, EPOLLIN, nothing);
  }
  std::vector<Watcher> watchers;
  Idle quiet;
  Handler nothing{[](Handler&) {}};
};

// --- interest in writing that comes and goes with each event -------------------------------------

struct OurToggle : Ours {
  OurToggle() {
    loop.add_file_event(sockets.ends[0], ae::kReadable, [this](int fd, ae::Mask) {
      ++count;
      if ((loop.file_events(fd) & ae::kWritable) != 0) {
        loop.remove_file_event(fd, ae::kWritable);
      } else {
        loop.add_file_event(fd, ae::kWritable, [](int, ae::Mask) {});
      }
    });
  }
  Sockets sockets;
};

struct LibevToggle : Libev {
  LibevToggle() {
    ev_io_init(
        &write, [](struct ev_loop*, ev_io*, int) {}, sockets.ends[0], EV_WRITE);
    ev_io_init(
        &read,
        [](struct ev_loop* its_loop, ev_io* w, int) {
          auto& self = *static_cast<LibevToggle*>(w->data);
          ++self.count;
          if (ev_is_active(&self.write)) {
            ev_io_stop(its_loop, &self.write);
          } else {
            ev_io_start(its_loop, &self.write);
          }
        },
        sockets.ends[0], EV_READ);
    read.data = this;
    ev_io_start(loop, &read);
  }
  ~LibevToggle() override {
    ev_io_stop(loop, &read);
    ev_io_stop(loop, &write);
  }
  Sockets sockets;
  ev_io read, write;
};

struct EpollToggle : Epoll, Handler {
  EpollToggle() {
    call = [](Handler& handler) {
      auto& self = static_cast<EpollToggle&>(handler);
      ++self.count;
      self.writing = !self.writing;
      self.control(EPOLL_CTL_MOD, self.sockets.ends[0], EPOLLIN | (self.writing ? EPOLLOUT : 0u),
                   self);
    };
    control(EPOLL_CTL_ADD, sockets.ends[0], EPOLLIN, *this);
  }
  Sockets sockets;
  bool writing = false;
};

// --- timers --------------------------------------------------------------------------------------

/// A second to an hour ahead, and an order to cancel them in.
struct Delays {
  Delays() : milliseconds(kTimers), order(kTimers) {
    std::mt19937 random(1);
    for (auto& one : milliseconds) one = 1'000 + static_cast<std::uint32_t>(random() % 3'600'000);
    for (std::size_t i = 0; i < kTimers; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
  }
  std::vector<std::uint32_t> milliseconds;
  std::vector<std::size_t> order;
};
const Delays& delays() {
  static const Delays instance;
  return instance;
}

enum class Work { kAdd, kCancel, kFire, kFireBesideOthers };

struct OurTimers : Ours {
  explicit OurTimers(Work its_work) : work(its_work), ids(kTimers) {
    if (work != Work::kFireBesideOthers) return;
    add_all();
    loop.add_time_event(ae::Duration::zero(), [this] {
      ++count;
      return ae::Duration::zero();
    });
  }
  void add_all() {
    for (std::size_t i = 0; i < kTimers; ++i) {
      ids[i] = loop.add_time_event(std::chrono::milliseconds(delays().milliseconds[i]),
                                   [] { return ae::kNoMore; });
    }
  }
  void cancel_all() {
    for (const std::size_t i : delays().order) loop.remove_time_event(ids[i]);
  }
  void prepare() override {
    if (work == Work::kAdd && added) cancel_all();
    if (work == Work::kCancel) add_all();
    if (work == Work::kFire) {
      for (std::size_t i = 0; i < kTimers; ++i) {
        loop.add_time_event(ae::Duration::zero(), [this] {
          ++count;
          return ae::kNoMore;
        });
      }
    }
  }
  void run(std::size_t events) override {
    added = true;
    if (work == Work::kAdd) {
      add_all();
    } else if (work == Work::kCancel) {
      cancel_all();
    } else {
      Ours::run(events);
    }
  }
  Work work;
  std::vector<ae::TimerId> ids;
  bool added = false;
};

struct LibevTimers : Libev {
  explicit LibevTimers(Work its_work) : work(its_work), timers(kTimers) {
    for (ev_timer& one : timers) one.data = this;
    if (work != Work::kFireBesideOthers) return;
    add_all();
    ev_timer_init(
        &again,
        [](struct ev_loop* its_loop, ev_timer* w, int) {
          ++static_cast<LibevTimers*>(w->data)->count;
          ev_timer_set(w, 0.0, 0.0);
          ev_timer_start(its_loop, w);
        },
        0.0, 0.0);
    again.data = this;
    ev_timer_start(loop, &again);
  }
  ~LibevTimers() override {
    for (ev_timer& one : timers) ev_timer_stop(loop, &one);
    if (work == Work::kFireBesideOthers) ev_timer_stop(loop, &again);
  }
  void add_all() {
    for (std::size_t i = 0; i < kTimers; ++i) {
      ev_timer_init(
          &timers[i], [](struct ev_loop*, ev_timer*, int) {}, delays().milliseconds[i] / 1000.0,
          0.0);
      ev_timer_start(loop, &timers[i]);
    }
  }
  void cancel_all() {
    for (const std::size_t i : delays().order) ev_timer_stop(loop, &timers[i]);
  }
  void prepare() override {
    if (work == Work::kAdd) cancel_all();
    if (work == Work::kCancel) add_all();
    if (work == Work::kFire) {
      for (ev_timer& one : timers) {
        ev_timer_init(
            &one,
            [](struct ev_loop*, ev_timer* w, int) { ++static_cast<LibevTimers*>(w->data)->count; },
            0.0, 0.0);
        ev_timer_start(loop, &one);
      }
    }
  }
  void run(std::size_t events) override {
    if (work == Work::kAdd) {
      add_all();
    } else if (work == Work::kCancel) {
      cancel_all();
    } else {
      Libev::run(events);
    }
  }
  Work work;
  std::vector<ev_timer> timers;
  ev_timer again;
};

// --- functions to run on the loop ----------------------------------------------------------------

/// What a program without post() writes.
class Queue {
 public:
  /// True if the loop has to be woken: nobody did since the last run().
  bool add(std::function<void()> function) {
    const std::lock_guard lock(mutex_);
    functions_.push_back(std::move(function));
    return functions_.size() == 1;
  }
  void run() {
    {
      const std::lock_guard lock(mutex_);
      running_.swap(functions_);
    }
    for (const auto& function : running_) function();
    running_.clear();
  }

 private:
  std::mutex mutex_;
  std::vector<std::function<void()>> functions_, running_;
};

struct OurPosts : Ours {
  void post(std::function<void()> function) { loop.post(std::move(function)); }
};

struct LibevPosts : Libev {
  LibevPosts() {
    ev_async_init(&async,
                  [](struct ev_loop*, ev_async* w, int) { static_cast<Queue*>(w->data)->run(); });
    async.data = &queue;
    ev_async_start(loop, &async);
  }
  ~LibevPosts() override { ev_async_stop(loop, &async); }
  void post(std::function<void()> function) {
    if (queue.add(std::move(function))) ev_async_send(loop, &async);
  }
  Queue queue;
  ev_async async;
};

struct EpollPosts : Epoll, Handler {
  EpollPosts() : wake(::eventfd(0, EFD_NONBLOCK)) {
    call = [](Handler& handler) {
      auto& self = static_cast<EpollPosts&>(handler);
      std::uint64_t value = 0;
      require(::read(self.wake, &value, sizeof value) == sizeof value, "read of an eventfd");
      self.queue.run();
    };
    control(EPOLL_CTL_ADD, wake, EPOLLIN, *this);
  }
  ~EpollPosts() override { ::close(wake); }
  void post(std::function<void()> function) {
    const std::uint64_t one = 1;
    if (!queue.add(std::move(function))) return;
    require(::write(wake, &one, sizeof one) == sizeof one, "write of an eventfd");
  }
  Queue queue;
  int wake;
};

/// The loop's own thread posts `batch` functions before each iteration.
template <class Base>
struct PostingItself : Base {
  explicit PostingItself(std::size_t its_batch) : batch(its_batch) {}
  void iterate() override {
    for (std::size_t i = 0; i < batch; ++i) Base::post([this] { ++this->count; });
    Base::iterate();
  }
  std::size_t batch;
};

/// Another thread posts while the loop runs.
template <class Base>
struct PostingFromAfar : Base {
  void run(std::size_t events) override {
    std::thread poster([this, events] {
      for (std::size_t i = 0; i < events; ++i) Base::post([this] { ++this->count; });
    });
    Base::run(events);
    poster.join();
  }
};

// --- taking turns --------------------------------------------------------------------------------

struct Row {
  std::string name;
  std::size_t events = kEvents;
  std::unique_ptr<Side> aeconn, libev, epoll;  // epoll: null where it has no such thing
  clockid_t clock = CLOCK_THREAD_CPUTIME_ID;
};

double now(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

double nanoseconds(Side& side, const Row& row) {
  side.prepare();
  side.count = 0;
  const double start = now(row.clock);
  side.run(row.events);
  return (now(row.clock) - start) / static_cast<double>(row.events);
}

struct Spread {
  explicit Spread(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const std::size_t half = values.size() / 2;
    median = values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
    least = values.front();
    greatest = values.back();
  }
  double median, least, greatest;
};

struct Result {
  explicit Result(const Row& row, int rounds) {
    const std::array<Side*, 3> sides{row.aeconn.get(), row.libev.get(), row.epoll.get()};
    std::array<std::vector<double>, 3> times;
    std::array<std::vector<double>, 3> ratios;
    for (int round = -1; round < rounds; ++round) {  // the first warms up
      std::array<double, 3> one{};
      for (std::size_t turn = 0; turn < 3; ++turn) {
        const std::size_t i = (turn + static_cast<std::size_t>(round + 1)) % 3;
        if (sides[i] != nullptr) one[i] = nanoseconds(*sides[i], row);
      }
      if (round < 0) continue;
      for (std::size_t i = 0; i < 3; ++i) {
        if (sides[i] == nullptr) continue;
        times[i].push_back(one[i]);
        ratios[i].push_back(one[0] / one[i]);
      }
    }
    aeconn = Spread(times[0]).median;
    libev = Spread(times[1]).median;
    to_libev.emplace(ratios[1]);
    if (sides[2] == nullptr) return;
    epoll = Spread(times[2]).median;
    to_epoll.emplace(ratios[2]);
  }
  double aeconn = 0, libev = 0, epoll = 0;
  std::optional<Spread> to_libev, to_epoll;
};

void print(const Row& row, const Result& result) {
  std::printf("%-44s %8.1f %8.1f", row.name.c_str(), result.aeconn, result.libev);
  if (result.to_epoll) {
    std::printf(" %8.1f", result.epoll);
  } else {
    std::printf(" %8s", "-");
  }
  for (const auto* ratio : {&result.to_libev, &result.to_epoll}) {
    if (ratio->has_value()) {
      std::printf("   %5.2f (%.2f-%.2f)", (*ratio)->median, (*ratio)->least, (*ratio)->greatest);
    }
  }
  std::printf("\n");
  std::fflush(stdout);
}

void print_json(const Row& row, const Result& result, bool first) {
  std::printf("%s\n {\"name\": \"%s\", \"unit\": \"ns\", \"aeconn\": %.1f, \"libev\": %.1f",
              first ? "" : ",", row.name.c_str(), result.aeconn, result.libev);
  if (result.to_epoll) std::printf(", \"epoll\": %.1f", result.epoll);
  const auto ratio = [](const char* name, const std::optional<Spread>& of) {
    if (!of) return;
    std::printf(", \"%s\": [%.3f, %.3f, %.3f]", name, of->median, of->least, of->greatest);
  };
  ratio("ratio_libev", result.to_libev);
  ratio("ratio_epoll", result.to_epoll);
  std::printf("}");
}

Row files(std::string name, Shape shape) {
  return {std::move(name), kEvents, std::make_unique<OurFiles>(shape),
          std::make_unique<LibevFiles>(shape), std::make_unique<EpollFiles>(shape)};
}
Row timers(std::string name, Work work) {
  return {std::move(name), kTimers, std::make_unique<OurTimers>(work),
          std::make_unique<LibevTimers>(work), nullptr};
}
Row posts(std::string name, std::size_t batch) {
  return {std::move(name), kEvents, std::make_unique<PostingItself<OurPosts>>(batch),
          std::make_unique<PostingItself<LibevPosts>>(batch),
          std::make_unique<PostingItself<EpollPosts>>(batch)};
}

/// Made one after the other, so that no row runs beside the descriptors of another.
const std::vector<std::function<Row()>>& rows() {
  static const std::vector<std::function<Row()>> all{
      [] {
        return files("1 ready file", {1, 0, false});
      },
      [] {
        return files("64 ready files", {64, 0, false});
      },
      [] {
        return files("1 ready file beside 1000 idle ones", {1, kIdle, false});
      },
      [] {
        return files("echo of a byte, 1 socket", {1, 0, true});
      },
      [] {
        return files("echo of a byte, 64 sockets", {64, 0, true});
      },
      [] {
        return files("echo of a byte, 64 beside 1000 idle ones", {64, kIdle, true});
      },
      [] {
        return Row{"write interest on and off", kEvents, std::make_unique<OurToggle>(),
                   std::make_unique<LibevToggle>(), std::make_unique<EpollToggle>()};
      },
      [] { return timers("100,000 timers: add one", Work::kAdd); },
      [] { return timers("100,000 timers: cancel one", Work::kCancel); },
      [] { return timers("100,000 timers: fire one, all are due", Work::kFire); },
      [] { return timers("a timer again and again beside 100,000", Work::kFireBesideOthers); },
      [] { return posts("post from the loop, 1 an iteration", 1); },
      [] { return posts("post from the loop, 100 an iteration", 100); },
      [] {
        return Row{"post from another thread, both threads' time",
                   kEvents,
                   std::make_unique<PostingFromAfar<OurPosts>>(),
                   std::make_unique<PostingFromAfar<LibevPosts>>(),
                   std::make_unique<PostingFromAfar<EpollPosts>>(),
                   CLOCK_PROCESS_CPUTIME_ID};
      }};
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  bool json = false;
  int rounds = 15;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      json = true;
    } else if (std::strcmp(argv[i], "--rounds") == 0 && i + 1 < argc &&
               std::atoi(argv[i + 1]) > 0) {
      rounds = std::atoi(argv[++i]);
    } else {
      std::fprintf(stderr, "usage: %s [--json] [--rounds N]\n", argv[0]);
      return 1;
    }
  }
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  if (json) {
    std::printf("{\"rows\": [");
  } else {
    std::printf("%-44s %8s %8s %8s   %-18s   %s\n", "ns for each event", "aeconn", "libev", "epoll",
                "aeconn / libev", "aeconn / epoll");
  }
  bool first = true;
  for (const auto& make : rows()) {
    const Row row = make();
    const Result result(row, rounds);
    if (json) {
      print_json(row, result, first);
    } else {
      print(row, result);
    }
    first = false;
  }
  if (json) std::printf("\n]}\n");
  return 0;
}
