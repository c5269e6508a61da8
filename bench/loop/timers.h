// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Benchmarks of timers: 100,000 of them, and one in addition to those.

#include <ev.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "bench/loop/sides.h"

namespace loop_bench {

/// Delays of one second to one hour, and the order in which to cancel them.
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
inline const Delays& delays() {
  static const Delays instance;
  return instance;
}

/// kAdd reads the clock for each timer, as a handler that may have run for long must do; kAddAt and
/// kMove count from an already known time.
enum class Work { kAdd, kAddAt, kMove, kCancel, kFire, kFireBesideOthers };

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
  void add_all_at() {
    const ae::TimePoint now = loop.now();
    for (std::size_t i = 0; i < kTimers; ++i) {
      ids[i] = loop.add_time_event(now + std::chrono::milliseconds(delays().milliseconds[i]),
                                   [] { return ae::kNoMore; });
    }
  }
  void move_all() {
    const ae::TimePoint now = loop.now() + std::chrono::hours(++hours);
    for (const std::size_t i : delays().order) {
      loop.again(ids[i], now + std::chrono::milliseconds(delays().milliseconds[i]));
    }
  }
  void cancel_all() {
    for (const std::size_t i : delays().order) loop.remove_time_event(ids[i]);
  }
  void prepare() override {
    if ((work == Work::kAdd || work == Work::kAddAt) && added) cancel_all();
    if (work == Work::kCancel || (work == Work::kMove && !added)) add_all();
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
    } else if (work == Work::kAddAt) {
      add_all_at();
    } else if (work == Work::kMove) {
      move_all();
    } else if (work == Work::kCancel) {
      cancel_all();
    } else {
      Ours::run(events);
    }
  }
  Work work;
  std::vector<ae::TimerId> ids;
  bool added = false;
  int hours = 0;
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
      if (work == Work::kAdd) ev_now_update(loop);
      ev_timer_init(
          &timers[i], [](struct ev_loop*, ev_timer*, int) {}, delays().milliseconds[i] / 1000.0,
          0.0);
      ev_timer_start(loop, &timers[i]);
    }
  }
  void move_all() {
    ++hours;
    for (const std::size_t i : delays().order) {
      timers[i].repeat = delays().milliseconds[i] / 1000.0 + hours * 3600.0;
      ev_timer_again(loop, &timers[i]);
    }
  }
  void cancel_all() {
    for (const std::size_t i : delays().order) ev_timer_stop(loop, &timers[i]);
  }
  void prepare() override {
    if (work == Work::kAdd || work == Work::kAddAt) cancel_all();
    if (work == Work::kCancel || (work == Work::kMove && hours == 0)) add_all();
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
    if (work == Work::kAdd || work == Work::kAddAt) {
      add_all();
    } else if (work == Work::kMove) {
      move_all();
    } else if (work == Work::kCancel) {
      cancel_all();
    } else {
      Libev::run(events);
    }
  }
  Work work;
  std::vector<ev_timer> timers;
  ev_timer again;
  int hours = 0;
};

}  // namespace loop_bench
