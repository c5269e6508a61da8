// SPDX-License-Identifier: BSD-3-Clause
#include "tests/simulation/processors.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace simulation {

thread_local Processors::Processor* Processors::here_ = nullptr;

namespace {

bool has_something(int epoll) noexcept {
  pollfd ready{epoll, POLLIN, 0};
  const timespec none{};
  return epoll >= 0 && syscall(SYS_ppoll, &ready, 1, &none, nullptr, NSIG / 8) > 0;
}

}  // namespace

Processors::Processors(World& world, std::size_t count) : world_(world) {
  for (std::size_t i = 0; i < count; ++i) all_.push_back(std::make_unique<Processor>());
}

Processors::~Processors() { end(); }

void Processors::take_turns_until(const std::function<bool()>& over) {
  world_.stepping = true;
  for (int i = 0; !over(); ++i) {
    if (i == 1'000'000) std::abort();
    std::size_t ran = 0;
    for (const auto& each : all_) ran += each->loop->process_events(ae::kFullIteration);
    if (ran == 0) (void)world_.advance(world_.now() + 100us);
  }
  world_.stepping = false;
}

void Processors::run_until(std::function<bool()> over) {
  over_ = std::move(over);
  world_.pace = this;
  if (!std::exchange(started_, true)) {
    for (const auto& each : all_) {
      each->clock = world_.now();
      each->thread = std::thread([this, one = each.get()] {
        one->turn.acquire();
        here_ = one;
        resume(*one);
        one->loop->run();
        one->over = true;
        main_.release();
      });
    }
  }
  if (Processor* const first = next(world_.now())) {
    first->turn.release();
    main_.acquire();
  }
}

void Processors::end() {
  if (!started_ || std::exchange(ending_, true)) return;
  for (const auto& each : all_) {
    each->loop->stop();
    each->turn.release();
    main_.acquire();
    each->thread.join();
  }
  Nanoseconds last = world_.now();
  for (const auto& each : all_) last = std::max(last, each->clock);
  world_.pace = nullptr;
  world_.set_clock(last, World::kNever);
}

void Processors::passing() noexcept {
  if (here_ == nullptr || choosing_ || ending_) return;
  if (world_.now() < std::min(limit_, world_.next_happening())) return;
  Processor& here = *here_;
  here.clock = world_.now();
  give_way(here);
}

void Processors::sleep(int epoll, Nanoseconds until) noexcept {
  if (here_ == nullptr || ending_) return;
  Processor& here = *here_;
  here.clock = world_.now();
  here.epoll = epoll;
  here.until = until;
  here.asleep = true;
  give_way(here);
}

void Processors::give_way(Processor& from) noexcept {
  from.cpu += from.clock - from.resumed;
  Processor* const after = next(from.clock);
  if (after != &from) {
    (after != nullptr ? after->turn : main_).release();
    from.turn.acquire();
  }
  resume(from);
}

void Processors::resume(Processor& here) noexcept {
  here.asleep = false;
  here.resumed = here.clock;
  world_.slept = here.clock - here.cpu;
  world_.set_clock(here.clock, limit_);
}

void Processors::wake(Processor& sleeper, Nanoseconds at) const noexcept {
  sleeper.asleep = false;
  sleeper.clock = std::max(sleeper.clock, at) + world_.config.wake_latency;
  sleeper.cpu += world_.config.wake_cpu;
  ++sleeper.wakes;
}

// The processor that runs next; null: the run is over. Sleepers may have been woken at `moment`.
Processors::Processor* Processors::next(Nanoseconds moment) noexcept {
  // Less than the network's shortest delay: effects of one processor reach another later than that.
  const Nanoseconds ahead = std::max<Nanoseconds>(world_.config.weather.least_delay / 2, 100ns);
  if (over_()) return nullptr;
  choosing_ = true;
  for (;;) {
    Processor *first = nullptr, *sleeper = nullptr;
    Nanoseconds second = World::kNever;
    for (const auto& each : all_) {
      if (each->asleep && has_something(each->epoll)) wake(*each, moment);
      if (each->asleep) {
        if (sleeper == nullptr || each->until < sleeper->until) sleeper = each.get();
      } else if (first == nullptr || each->clock < first->clock) {
        if (first != nullptr) second = std::min(second, first->clock);
        first = each.get();
      } else {
        second = std::min(second, each->clock);
      }
    }
    const Nanoseconds runs = first != nullptr ? first->clock : World::kNever;
    const Nanoseconds wakes = sleeper != nullptr ? sleeper->until : World::kNever;
    const Nanoseconds happens = world_.next_happening();
    if (happens <= std::min(runs, wakes) && happens != World::kNever) {
      world_.set_clock(happens, World::kNever);
      world_.run_due();
      moment = happens;
    } else if (wakes <= runs && wakes != World::kNever) {
      wake(*sleeper, wakes);
    } else if (first == nullptr) {
      std::fputs("simulation: every processor sleeps and nothing will wake one\n", stderr);
      std::abort();
    } else {
      limit_ = std::min(second == World::kNever ? second : second + ahead, wakes);
      choosing_ = false;
      return first;
    }
  }
}

}  // namespace simulation
