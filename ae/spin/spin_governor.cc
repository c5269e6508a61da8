// SPDX-License-Identifier: BSD-3-Clause
#include "ae/spin/spin_governor.h"

#include <algorithm>

namespace ae { inline namespace AECONN_ABI {

void SpinGovernor::set(const Prices& prices) noexcept {
  prices_ = prices;
  if (!idle_) apply();
}

void SpinGovernor::apply() noexcept {
  // No gaps between work are known yet: assume that they are long.
  if (price_ == 0) weight_.back() = kWeight;
  const std::int64_t cost = prices_.sleep_cost.count(), latency = prices_.sleep_latency.count();
  price_ = cost + prices_.latency_weight * latency;
  cap_ = std::min(cost + 2 * latency, std::int64_t{prices_.most.count()});
}

void SpinGovernor::allow(bool allowed) noexcept {
  allowed_ = allowed;
  if (allowed) return;
  if (probe_left_ != 0) end_probe(began_);
  idle_ = false;  // the current idle period is not recorded
  streak_ = retries_ = short_sleeps_ = 0;
}

SpinGovernor::Duration SpinGovernor::idle_began(TimePoint now) noexcept {
  apply();
  budget_ = 0;
  idle_ = allowed_;
  if (!allowed_) return {};
  began_ = now;
  if (!started_) last_probe_ = now;
  started_ = true;
  retries_now_ = false;
  if (probe_left_ == 0) {
    budget_ = best_budget();
    if (retries_ != 0) {
      retries_now_ = purse_ >= kPurse.count() / 2 && purse_ >= cap_;
      retries_ = retries_now_ ? retries_ - 1 : 0;
      if (retries_now_) budget_ = cap_;
    }
    if (budget_ > purse_) budget_ = 0;
    if (budget_ == 0 && may_probe(now)) begin_probe();
  }
  probing_ = probe_left_ != 0;
  if (probing_) budget_ = cap_;
  return Duration(budget_);
}

void SpinGovernor::ended(TimePoint now, Found how) noexcept {
  if (!idle_) return;
  idle_ = false;
  const std::int64_t passed = std::max<std::int64_t>(0, (now - began_).count());
  vain_ = how == Found::kSpun ? 0 : vain_ + 1;
  if (how == Found::kSpun) {
    // If another thread had the processor, the work is found late, and `passed` is longer than the
    // budget (the intended length of the spin). The spin itself has cost at most the budget.
    const std::int64_t gap = std::min(passed, budget_);
    settle(price_ - gap);
    learn(passed);
    if (probing_)
      gaps_[probe_hits_++] = gap;
    else
      learn_latency_of_hit(gap);
    if (streak_ < kStreak) ++streak_;
    if (streak_ == kStreak && debt_ == 0 && 2 * gap < price_) probes_pay();
  } else {
    if (budget_ != 0) settle(-budget_);
    learn_latency(passed);
    learn_sleep(passed);
    // The work arrived during the sleep. The time of the loop's own wake-up is subtracted from the
    // gap (the time until the work arrived): otherwise the peer would look slower than it is.
    learn(std::max(budget_ + (budget_ != 0 ? 1 : 0), passed - latency()));
  }
  if (periods_ < kMostProbePeriods) ++periods_;
  if (!probing_) return;
  --probe_left_;
  // If the peer joins this probe (a series of trial spins) with spins of its own, it has done so by
  // the time this loop has made kJoined spins.
  if (probe_left_ == kProbeRun - kJoined) gain_joined_ = probe_gain_;
  const bool alone = probe_left_ == kProbeRun / 2 && probe_gain_ < gain_joined_;
  if (probe_left_ == 0 || alone || vain_ == kVainSpins) end_probe(now);
}

// Counts `gain`, the CPU time that the spin of one idle period has saved (negative: lost). A loss
// in a probe (a series of trial spins) does not reduce purse_, the CPU time that other spins may
// still lose; a gain always raises it, up to its limit.
void SpinGovernor::settle(std::int64_t gain) noexcept {
  if (probing_)
    probe_gain_ += gain;
  else
    debt_ = std::max<std::int64_t>(0, debt_ - gain);
  if (gain < 0 && probing_)
    probe_spent_ -= gain;
  else
    purse_ = std::min(purse_ + gain, std::int64_t{kPurse.count()});
}

// After a spin that found no work, lowers the bound of the wake-up latency L if the idle period has
// ended sooner than L after the spin, since the wake-up was a part of that time. The recorded gaps
// (idle times minus L) are then too short, and are discarded. They are kept after a probe or a
// retry, spins whose length does not depend on the recorded gaps.
void SpinGovernor::learn_latency(std::int64_t passed) noexcept {
  const std::int64_t most = passed - budget_;
  if (budget_ == 0 || most >= latency() || prices_.latency_is_given) return;
  latency_bound_ = (latency() + std::max<std::int64_t>(0, most)) / 2;
  if (probing_ || retries_now_) return;
  weight_.fill(0);
  sum_.fill(0);
  weight_.back() = kWeight;
}

// Lowers the bound of the wake-up latency L after a probe (a series of trial spins). Spins find
// work sooner than sleeps, by at least the time of the loop's wake-up. So L is at most the median
// length of sleeps minus the median length of the probe's spins that found work.
void SpinGovernor::learn_latency_of_probe() noexcept {
  if (probe_hits_ < kProbeRun / 2 || slept_ < kFirstSleeps) return;
  const auto middle = gaps_.begin() + probe_hits_ / 2;
  std::nth_element(gaps_.begin(), middle, gaps_.begin() + probe_hits_);
  const std::int64_t sooner = usual_sleep_ - *middle, now = latency();
  if (sooner < now) latency_bound_ = std::max(sooner, now / 2);
}

// Lowers the upper bound of the wake-up latency L after one spin that found work. One observation
// proves little, so the bound moves only an eighth of the way towards what it suggests.
void SpinGovernor::learn_latency_of_hit(std::int64_t gap) noexcept {
  const std::int64_t sooner = usual_sleep_ - gap, now = latency();
  if (slept_ == kFirstSleeps && sooner < now)
    latency_bound_ = now - (now - std::max(sooner, now / 2)) / 8;
}

void SpinGovernor::learn_sleep(std::int64_t passed) noexcept {
  if (budget_ != 0) {
    if (!probing_ && streak_ == kStreak) retries_ = kRetries;
    // An idle period longer than two of the longest spins and a usual sleep means that the peer has
    // paused. The long spins, which try to make both loops spin again, then end.
    if (retries_now_ && passed > 2 * cap_ + usual_sleep_) retries_ = 0;
    streak_ = 0;
    return;
  }
  streak_ = 0;
  // After each sleep that no spin preceded, raises the bound of the wake-up latency a little: the
  // observation that lowered it may have been an accident, or out of date.
  if (latency_bound_ < prices_.sleep_latency.count())
    latency_bound_ += (prices_.sleep_latency.count() - latency_bound_) / 512 + 1;
  if (slept_ < kFirstSleeps) {
    usual_sleep_ = slept_ == 0 ? passed : std::min(usual_sleep_, passed);
    ++slept_;
    return;
  }
  short_sleeps_ = passed < usual_sleep_ - prices_.sleep_cost.count() / 2 ? short_sleeps_ + 1 : 0;
  const std::int64_t step = usual_sleep_ / 64 + 1;
  usual_sleep_ += passed > usual_sleep_ ? step : -step;
}

void SpinGovernor::learn(std::int64_t gap) noexcept {
  const unsigned decay = probing_ ? kProbeDecay : kDecay;
  // The weight of each histogram bin decreases by a fixed fraction and by 1 more, so that it can
  // reach 0. A weight that remained when the bin's sum is 0 would count as a gap of length zero.
  for (std::uint32_t& each : weight_) each -= (each >> decay) + (each != 0 ? 1 : 0);
  for (std::uint64_t& each : sum_) each -= each >> decay;
  const auto bin =
      static_cast<std::size_t>(std::lower_bound(kEdge.begin(), kEdge.end(), gap) - kEdge.begin());
  const std::uint32_t weight = kWeight >> decay;
  weight_[bin] += weight;
  if (bin < kEdges) sum_[bin] += static_cast<std::uint64_t>(gap) * weight;
}

std::int64_t SpinGovernor::best_budget() const noexcept {
  std::int64_t all = 0;
  for (const std::uint32_t each : weight_) all += each;
  std::int64_t best = 0, best_gain = all * price_ / kMargin, below = 0, spent = 0;
  for (std::size_t i = 0; i < kEdges && kEdge[i] <= cap_; ++i) {
    below += weight_[i];
    spent += static_cast<std::int64_t>(sum_[i]);
    const std::int64_t gain = below * price_ - spent - (all - below) * kEdge[i];
    if (gain <= best_gain) continue;
    best_gain = gain;
    best = kEdge[i];
  }
  return best;
}

bool SpinGovernor::may_probe(TimePoint now) const noexcept {
  const unsigned sooner = short_sleeps_ >= kShortSleeps ? kJoinSooner : 1;
  if (periods_ < probe_periods_ / sooner || (now - last_probe_).count() < probe_time_ / sooner)
    return false;
  if (slept_ == kFirstSleeps && usual_sleep_ <= 2 * cap_) return true;
  std::uint32_t within = 0, all = weight_.back();
  for (std::size_t i = 0; i < kEdges; ++i) {
    all += weight_[i];
    if (kEdge[i] <= cap_) within += weight_[i];
  }
  return within > all / kHope;
}

void SpinGovernor::begin_probe() noexcept {
  probe_left_ = kProbeRun;
  ++probes_;
  probe_gain_ = 0;
  probe_hits_ = vain_ = 0;
}

void SpinGovernor::probes_pay() noexcept {
  debt_ = 0;
  probe_periods_ = kAgainPeriods;
  probe_time_ = Duration(kAgainTime).count();
}

void SpinGovernor::end_probe(TimePoint now) noexcept {
  learn_latency_of_probe();
  probing_ = false;
  probe_left_ = 0;
  periods_ = short_sleeps_ = 0;
  last_probe_ = now;
  if (probe_gain_ >= kWorthAProbe * price_) return probes_pay();
  debt_ = std::min(std::max(debt_, debt_ - probe_gain_), kProbeRun * cap_);
  // While probes are frequent, the distance to the next one is only doubled: two loops that have
  // ceased to spin at the same time need several probes until both spin again.
  const unsigned farther = probe_periods_ < kProbePeriods ? 2 : 4;
  probe_periods_ = std::min(farther * probe_periods_, kMostProbePeriods);
  probe_time_ = std::min(farther * probe_time_, std::int64_t{Duration(kMostProbeTime).count()});
}

bool SpinRoom::look(TimePoint now, const Seen& seen) noexcept {
  next_look_ = now + kLookEvery;
  const Duration spun = seen.spun - spun_, lost = seen.lost - lost_;
  if (lost >= kLeastLost && 100 * lost > kLostPercent * spun) {
    if (now - rests_until_ > rest_) rest_ = kLeastRest;
    rests_until_ = now + rest_;
    rest_ = std::min(2 * rest_, kMostRest);
  }
  spun_ = seen.spun;
  lost_ = seen.lost;
  return seen.processors > 1 && !seen.quota && now >= rests_until_;
}

}}  // namespace ae
