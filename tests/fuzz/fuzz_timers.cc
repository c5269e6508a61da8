// SPDX-License-Identifier: BSD-3-Clause
// Goal: with any sequence of additions, moves, removals and rescheduling, within handlers and
// outside, with handlers that are slow or throw, each time event runs when it is due: never early,
// not twice, and in the first iteration that checks the clock after its time; if handlers use up
// the loop's time slice, in one of the next iterations, each of which runs at least one. Method:
// this process's monotonic clock is a variable; the input is a program that moves it, and a map
// from timer to due time determines what must run. Run by `make fuzz`, with the seeds in
// corpus/timers.

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <vector>

#include "ae/core/loop_core.h"
#include "ae/libev_loop.h"

namespace {

bool clock_is_ours = false;
std::int64_t clock_ns = 0;

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

// Replaces the C library's function for libev and std::chrono.
extern "C" int clock_gettime(clockid_t which, timespec* time) {
  if ((which == CLOCK_MONOTONIC || which == CLOCK_MONOTONIC_COARSE) && clock_is_ours) {
    time->tv_sec = clock_ns / 1'000'000'000;
    time->tv_nsec = clock_ns % 1'000'000'000;
    return 0;
  }
  return static_cast<int>(syscall(SYS_clock_gettime, which, time));
}

namespace {

// Precision of a loop's clock, a double; timers due within it may run now or in the next iteration.
constexpr std::int64_t kRounding = 200;
// The loop's limit of timers per iteration; here there are always fewer.
constexpr std::size_t kMostTimers = 200;

struct Oops {};

class Run {
 public:
  Run(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void play() {
    while (left_ != 0) {
      switch (byte() % 5) {
        case 0:
          add();
          break;
        case 1:
          remove();
          break;
        case 2:
          clock_ns += span();
          break;
        case 4:
          move();
          break;
        default:
          iterate();
          break;
      }
    }
    clock_ns += 1'000'000'000'000;  // everything is due
    do iterate();
    while (!owed_.empty());
    iterate();
  }

 private:
  std::uint8_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }

  // 0, nanoseconds, microseconds, milliseconds, seconds.
  std::int64_t span() {
    static constexpr std::int64_t kUnits[] = {0, 1, 1000, 1'000'000, 1'000'000'000};
    const std::uint8_t first = byte();
    return kUnits[first % 5] * (first / 5 + 1);
  }

  void add() {
    if (due_.size() >= kMostTimers) return;
    const std::int64_t delay = span();
    const std::size_t number = ids_.size();
    ids_.push_back(0);
    ids_[number] = loop_.add_time_event(std::chrono::nanoseconds(delay),
                                        [this, number] { return run(number); });
    require(ids_[number] != 0);
    due_[number] = clock_ns + delay;
  }

  void remove() {
    if (ids_.empty()) return;
    const std::size_t number = byte() % ids_.size();
    require(loop_.remove_time_event(ids_[number]) == (due_.erase(number) == 1));
    owed_.erase(number);
  }

  // By a delay or to a point in time; also the timer whose handler is running.
  bool move(std::size_t number) {
    const std::uint8_t how = byte();
    const std::int64_t delay = (how & 1) != 0 ? span() : -span();
    const ae::TimePoint when{std::chrono::nanoseconds(clock_ns + delay)};
    const bool there = (how & 2) != 0 ? loop_.again(ids_[number], when)
                                      : loop_.again(ids_[number], std::chrono::nanoseconds(delay));
    require(there == due_.contains(number));
    if (!there) return false;
    due_[number] = clock_ns + (delay > 0 ? delay : 0);
    owed_.erase(number);
    return true;
  }
  void move() {
    if (!ids_.empty()) move(byte() % ids_.size());
  }

  ae::Duration run(std::size_t number) {
    const auto at = due_.find(number);
    require(iterating_ && at != due_.end() && at->second <= clock_ns);
    require(ran_.insert(number).second);  // once per iteration
    owed_.erase(number);
    const std::uint8_t then = byte();
    if ((then & 8) != 0) clock_ns += span();  // a slow handler
    if ((then & 16) != 0) add();
    if ((then & 32) != 0) remove();
    if ((then & 64) != 0 && due_.contains(number)) {  // removes itself
      require(loop_.remove_time_event(ids_[number]));
      require(!loop_.remove_time_event(ids_[number]));
      due_.erase(number);
    }
    const bool moved = (then & 128) != 0 && move(number);
    switch (then % 5) {
      case 0:
        if (!moved) due_.erase(number);  // being moved outweighs kNoMore
        return ae::kNoMore;
      case 1:
        due_.erase(number);
        throw Oops();
      case 2:
        return again(number, 0, moved);
      case 3:
        return again(number, -1, moved);  // counts as 0
      default:
        return again(number, span(), moved);
    }
  }

  ae::Duration again(std::size_t number, std::int64_t delay, bool moved) {
    if (!moved && due_.contains(number)) due_[number] = clock_ns + (delay > 0 ? delay : 0);
    return std::chrono::nanoseconds(delay);
  }

  void iterate() {
    for (const auto& [number, due] : due_) {
      if (due + kRounding <= clock_ns) owed_.insert(number);
    }
    ran_.clear();
    const std::int64_t began = clock_ns;
    bool threw = false;
    iterating_ = true;
    try {
      const std::size_t count = loop_.process_events(ae::kFullIteration | ae::kDontWait);
      require(count == ran_.size());
    } catch (const Oops&) {
      threw = true;  // other due timers run in the next iteration
    }
    iterating_ = false;
    const bool slice_is_over = clock_ns - began >= std::chrono::nanoseconds(ae::kSlice).count();
    require(threw || owed_.empty() || (slice_is_over && !ran_.empty()));
  }

  const std::uint8_t* data_;
  std::size_t left_;
  ae::LibevLoop loop_;
  std::vector<ae::TimerId> ids_;             // by number
  std::map<std::size_t, std::int64_t> due_;  // existing timers
  std::set<std::size_t> owed_, ran_;         // must run; have run in this iteration
  bool iterating_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  clock_ns = 1'000'000'000;
  clock_is_ours = true;
  Run(data, size).play();
  clock_is_ours = false;
  return 0;
}
