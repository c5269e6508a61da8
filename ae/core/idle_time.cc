// SPDX-License-Identifier: BSD-3-Clause
#include "ae/core/idle_time.h"

#include <ctime>

#include <algorithm>
#include <utility>

namespace ae { inline namespace AECONN_ABI {
namespace {

// The measured CPU time of one sleep, in ns, is limited to the range from kLeastCost to kMostCost.
constexpr std::int64_t kLeastCost = 2'000, kMostCost = 100'000;
constexpr unsigned kFastWeight = 3;
// Once the CPU time of kSamples sleeps was measured, that of only one sleep in kSampleEvery is
// measured.
constexpr unsigned kSampleEvery = 64;

std::int64_t thread_cpu_ns() noexcept {
  timespec spent{};
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent) != 0) return -1;
  return std::int64_t{spent.tv_sec} * 1'000'000'000 + spent.tv_nsec;
}

}  // namespace

void IdleTime::ask(const Spin& spin, TimePoint now) noexcept {
  if (!on()) busy_since_ = now;
  // Ends the current idle period. Otherwise its spin would last as long as the old settings allow,
  // which may be without limit.
  drop();
  asked_ = spin;
  set_prices();
}

void IdleTime::set_prices() noexcept {
  SpinGovernor::Prices prices;
  if (asked_.sleep_cost > Duration::zero())
    prices.sleep_cost = asked_.sleep_cost;
  else if (sampled_ != 0)
    prices.sleep_cost = times_.sleep_cost;
  prices.latency_is_given = asked_.sleep_latency > Duration::zero();
  prices.sleep_latency = prices.latency_is_given ? asked_.sleep_latency : 2 * prices.sleep_cost;
  prices.latency_weight = asked_.mode == Spin::Mode::kFast ? kFastWeight : 0;
  prices.most = asked_.most;
  times_.sleep_cost = prices.sleep_cost;
  governor_.set(prices);
}

void IdleTime::begin(TimePoint now) noexcept {
  // The loop was woken without work: the idle period continues.
  if (phase_ == Phase::kSleeping) return;
  times_.busy += now - busy_since_;
  began_ = looked_ = last_look_ = now;
  phase_ = Phase::kSpinning;
  Duration budget = asked_.time;
  if (governed()) {
    if (room_.due(now)) {
      SpinRoom::Seen seen = environment_.look();
      seen.spun = times_.spun + lost_after_;
      seen.lost = lost_;
      governor_.allow(room_.look(now, seen));
    }
    budget = governor_.idle_began(now);
  }
  times_.spin_budget = budget;
  until_ = asked_.mode == Spin::Mode::kAlways ? TimePoint::max() : now + budget;
}

void IdleTime::end_spin(TimePoint now) noexcept {
  if (phase_ == Phase::kSpinning) {
    phase_ = Phase::kSleeping;
    slept_ = false;
    looked_ = slept_since_ = now;
  }
  const bool sample = sampled_ < kSamples || ++sleeps_ % kSampleEvery == 0;
  if (sample && governed() && asked_.sleep_cost == Duration::zero()) cpu_before_ = thread_cpu_ns();
}

void IdleTime::looked(TimePoint now) noexcept {
  looked_ = now;
  if (phase_ != Phase::kSleeping) return;
  slept_ = true;
  const std::int64_t before = std::exchange(cpu_before_, -1);
  if (before < 0) return;
  if (const std::int64_t cpu = thread_cpu_ns(); cpu >= before) take_sample(cpu - before);
}

void IdleTime::found() noexcept {
  const bool slept = phase_ == Phase::kSleeping && slept_;
  phase_ = Phase::kBusy;
  cpu_before_ = -1;
  busy_since_ = looked_;
  const TimePoint spun_until = slept ? slept_since_ : looked_;
  times_.spun += spun_until - began_;
  times_.slept += looked_ - spun_until;
  if (until_ != began_) ++(slept ? times_.spin_misses : times_.spin_hits);
  if (!governed()) return;
  governor_.ended(looked_, slept ? SpinGovernor::Found::kSlept : SpinGovernor::Found::kSpun);
}

void IdleTime::vetoed() noexcept {
  if (slept_ || until_ != began_)
    found();
  else
    drop();  // the loop has neither spun nor slept in this idle period
}

void IdleTime::drop() noexcept {
  if (phase_ == Phase::kBusy) return;
  if (phase_ == Phase::kSpinning) looked_ = std::max(looked_, std::min(last_look_, until_));
  const TimePoint spun_until = phase_ == Phase::kSleeping ? slept_since_ : looked_;
  times_.spun += spun_until - began_;
  times_.slept += looked_ - spun_until;
  phase_ = Phase::kBusy;
  cpu_before_ = -1;
  busy_since_ = looked_;
}

void IdleTime::take_sample(std::int64_t cost) noexcept {
  samples_[sampled_ % kSamples] = cost;
  ++sampled_;
  const auto count = static_cast<std::ptrdiff_t>(std::min(sampled_, kSamples));
  auto sorted = samples_;
  std::nth_element(sorted.begin(), sorted.begin() + count / 2, sorted.begin() + count);
  times_.sleep_cost =
      Duration(std::clamp(sorted[static_cast<std::size_t>(count / 2)], kLeastCost, kMostCost));
  set_prices();
}

LoopTimes IdleTime::times() const noexcept {
  LoopTimes times = times_;
  times.spin_probes = governor_.probes();
  return times;
}

}}  // namespace ae
