// SPDX-License-Identifier: BSD-3-Clause
// Compares ae::LibevLoop and ae::EpollLoop with bare libev and bare epoll: events, timers, post().
// All run in one process in turns, so that other activity of the machine affects all alike.
//
//   build/bench/loop-bench [--json] [--rounds N]
//
// Figures are medians over the rounds, in nanoseconds of processor time per event. Ratios are
// computed within each round; printed are their median and, in brackets, the minimum and maximum.
// Bare epoll has only timers with a descriptor each, so timers are compared with libev alone.
// Neither has a queue of functions: they get a vector with a mutex, and an ev_async or an eventfd
// to wake the loop, as a program would write it.

#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/loop/files.h"
#include "bench/loop/posts.h"
#include "bench/loop/timers.h"

using namespace loop_bench;

namespace {

struct Row {
  std::string name;
  std::size_t events = kEvents;
  std::unique_ptr<Side> aeconn, epoll_loop, libev, epoll;  // epoll: null if it has no equivalent
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

enum SideNumber { kAeconn, kEpollLoop, kLibev, kEpoll, kSides };

struct Result {
  explicit Result(const Row& row, int rounds) {
    const std::array<Side*, kSides> sides{row.aeconn.get(), row.epoll_loop.get(), row.libev.get(),
                                          row.epoll.get()};
    std::array<std::vector<double>, kSides> times;
    std::vector<double> of_libev, of_epoll, epoll_loops;
    for (int round = -1; round < rounds; ++round) {  // the first is a warm-up
      std::array<double, kSides> one{};
      for (std::size_t turn = 0; turn < kSides; ++turn) {
        const std::size_t i = (turn + static_cast<std::size_t>(round + 1)) % kSides;
        if (sides[i] != nullptr) one[i] = nanoseconds(*sides[i], row);
      }
      if (round < 0) continue;
      for (std::size_t i = 0; i < kSides; ++i) times[i].push_back(one[i]);
      of_libev.push_back(one[kAeconn] / one[kLibev]);
      epoll_loops.push_back(one[kEpollLoop] / one[kAeconn]);
      if (sides[kEpoll] != nullptr) of_epoll.push_back(one[kAeconn] / one[kEpoll]);
    }
    aeconn = Spread(times[kAeconn]).median;
    epoll_loop = Spread(times[kEpollLoop]).median;
    libev = Spread(times[kLibev]).median;
    to_libev.emplace(of_libev);
    epoll_to_libev.emplace(epoll_loops);
    if (of_epoll.empty()) return;
    epoll = Spread(times[kEpoll]).median;
    to_epoll.emplace(of_epoll);
  }
  double aeconn = 0, epoll_loop = 0, libev = 0, epoll = 0;
  std::optional<Spread> to_libev, to_epoll;
  std::optional<Spread> epoll_to_libev;  // ratio of EpollLoop to LibevLoop
};

void print(const Row& row, const Result& result) {
  std::printf("%-44s %8.1f %9.1f %8.1f", row.name.c_str(), result.aeconn, result.epoll_loop,
              result.libev);
  if (result.to_epoll) {
    std::printf(" %8.1f", result.epoll);
  } else {
    std::printf(" %8s", "-");
  }
  for (const auto* ratio : {&result.epoll_to_libev, &result.to_libev, &result.to_epoll}) {
    if (ratio->has_value()) {
      std::printf("   %5.2f (%.2f-%.2f)", (*ratio)->median, (*ratio)->least, (*ratio)->greatest);
    }
  }
  std::printf("\n");
  std::fflush(stdout);
}

void print_json(const Row& row, const Result& result, bool first) {
  std::printf(
      "%s\n {\"name\": \"%s\", \"unit\": \"ns\", \"aeconn\": %.1f, "
      "\"epoll_loop\": %.1f, \"libev\": %.1f",
      first ? "" : ",", row.name.c_str(), result.aeconn, result.epoll_loop, result.libev);
  if (result.to_epoll) std::printf(", \"epoll\": %.1f", result.epoll);
  const auto ratio = [](const char* name, const std::optional<Spread>& of) {
    if (!of) return;
    std::printf(", \"%s\": [%.3f, %.3f, %.3f]", name, of->median, of->least, of->greatest);
  };
  ratio("ratio_epoll_loop", result.epoll_to_libev);
  ratio("ratio_libev", result.to_libev);
  ratio("ratio_epoll", result.to_epoll);
  std::printf("}");
}

template <class Of, class... Arguments>
Row row(std::string name, std::size_t events, std::unique_ptr<Side> libev,
        std::unique_ptr<Side> epoll, Arguments... arguments) {
  Both<Of> ours(arguments...);
  return {std::move(name),          events,           std::move(ours.on_libev),
          std::move(ours.on_epoll), std::move(libev), std::move(epoll)};
}
Row files(std::string name, Shape shape) {
  return row<OurFiles>(std::move(name), kEvents, std::make_unique<LibevFiles>(shape),
                       std::make_unique<EpollFiles>(shape), shape);
}
/// With EpollLoop hosted in another loop instead of running by itself.
Row hosted_files(std::string name, Shape shape) {
  Row its = files(std::move(name), shape);
  our_loop = "epoll";
  its.epoll_loop = std::make_unique<HostedFiles>(shape);
  return its;
}
Row timers(std::string name, Work work) {
  return row<OurTimers>(std::move(name), kTimers, std::make_unique<LibevTimers>(work), nullptr,
                        work);
}
Row posts(std::string name, std::size_t batch) {
  return row<PostingItself<OurPosts>>(std::move(name), kEvents,
                                      std::make_unique<PostingItself<LibevPosts>>(batch),
                                      std::make_unique<PostingItself<EpollPosts>>(batch), batch);
}

/// Created one after the other, so that no row runs beside the descriptors of another.
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
        return hosted_files("1 ready file, EpollLoop below a host", {1, 0, false});
      },
      [] {
        return hosted_files("echo of a byte, 64, EpollLoop below a host", {64, 0, true});
      },
      [] {
        return row<OurToggle>("write interest on and off", kEvents, std::make_unique<LibevToggle>(),
                              std::make_unique<EpollToggle>());
      },
      [] { return timers("100,000 timers: add one, by the clock", Work::kAdd); },
      [] { return timers("100,000 timers: add one, by a known time", Work::kAddAt); },
      [] { return timers("100,000 timers: move one to a later time", Work::kMove); },
      [] { return timers("100,000 timers: cancel one", Work::kCancel); },
      [] { return timers("100,000 timers: fire one, all are due", Work::kFire); },
      [] { return timers("a timer again and again beside 100,000", Work::kFireBesideOthers); },
      [] { return posts("post from the loop, 1 an iteration", 1); },
      [] { return posts("post from the loop, 100 an iteration", 100); },
      [] {
        Row both =
            row<PostingFromAfar<OurPosts>>("post from another thread, both threads' time", kEvents,
                                           std::make_unique<PostingFromAfar<LibevPosts>>(),
                                           std::make_unique<PostingFromAfar<EpollPosts>>());
        both.clock = CLOCK_PROCESS_CPUTIME_ID;
        return both;
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
    std::printf("%-44s %8s %9s %8s %8s   %-18s %-18s %s\n", "ns for each event", "aeconn",
                "EpollLoop", "libev", "epoll", "EpollLoop / aeconn", "aeconn / libev",
                "aeconn / epoll");
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
