// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Says how long a loop that has nothing to do spins before it sleeps. Pure: it is told the time,
// allocates nothing, and asks nobody.
//
// To spin for the gap g until work comes takes g of CPU; to sleep takes C, the CPU of one sleep and
// its wake-up, and L of latency. It remembers the gaps of about the last 16 idle periods and spins
// up to that b which would have saved most on them:
//
//   below(b) * price - spent(b) - above(b) * b       with price = C + lambda * L
//
//   below, above  gaps up to b, and longer ones
//   spent         the sum of those up to b
//   lambda        the CPU that one pays for a microsecond of latency; 0: none
//
// Two loops that answer each other and both sleep hide from each other that spinning would pay:
// each sees a gap that the other's wake-up makes longer. Hence probes: now and then a run of spins.
// The other sees its sleeps become shorter, and joins with a probe of its own. What interrupts two
// that spin, such as a tick of the system, makes both sleep: after a run of hits a miss is followed
// by a few long spins, in which they meet again. A purse bounds what is lost to bad guesses.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "ae/abi.h"
#include "ae/spin.h"

namespace ae { inline namespace AECONN_ABI {

class SpinGovernor {
 public:
  using Duration = std::chrono::nanoseconds;
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Prices {
    Duration sleep_cost = std::chrono::microseconds(5);      ///< C
    Duration sleep_latency = std::chrono::microseconds(10);  ///< L
    unsigned latency_weight = 0;                             ///< lambda
    Duration most = Spin{}.most;                             ///< no spin is longer
    bool latency_is_given = false;                           ///< else less is believed once seen
    friend bool operator==(const Prices&, const Prices&) = default;
  };
  enum class Found : std::uint8_t { kSpun, kSlept };

  static constexpr Duration kPurse = std::chrono::milliseconds(1);
  static constexpr unsigned kProbeRun = 32;  ///< idle periods of one probe
  /// At least so many idle periods, and so much time, lie between two probes at first; four times
  /// as many after each that was in vain (twice, below these), up to the second figure.
  static constexpr std::uint32_t kProbePeriods = 256, kMostProbePeriods = 16384;
  static constexpr Duration kProbeTime = std::chrono::milliseconds(100),
                            kMostProbeTime = std::chrono::milliseconds(6400);
  /// It ends early if so many of its spins in a row are in vain: the peer sees none of them; and
  /// after half of it, if what followed so many spins earned nothing.
  static constexpr unsigned kVainSpins = 4, kJoined = 8;
  /// After a probe that earned what four sleeps cost, and after a hit worth half of one in a
  /// streak, once hits have earned what probes in vain lost, the next one may come so soon.
  static constexpr std::int64_t kWorthAProbe = 4;
  static constexpr std::uint32_t kAgainPeriods = 64;
  static constexpr Duration kAgainTime = std::chrono::milliseconds(5);
  /// After so many sleeps in a row that are shorter by half of C than usual, the peer may
  /// spin: a probe joins it, after a quarter of the distance between probes.
  static constexpr unsigned kShortSleeps = 4;
  static constexpr unsigned kJoinSooner = 4;
  /// So many hits in a row make the next miss an accident, and so many spins as long as the cap
  /// follow it while half of the purse is there, until one is followed by a pause.
  static constexpr unsigned kStreak = 16, kRetries = 8;

  SpinGovernor() noexcept { set(Prices{}); }

  /// From the next idle period on.
  void set(const Prices& prices) noexcept;
  const Prices& prices() const noexcept { return prices_; }
  /// False: every budget is 0, and nothing is learnt.
  void allow(bool allowed) noexcept;
  bool allowed() const noexcept { return allowed_; }

  /// The loop has nothing to do. Returns how long it may spin; 0: it sleeps at once.
  Duration idle_began(TimePoint now) noexcept;
  /// Work has come at `now`: it was found while spinning, or woke the loop.
  void ended(TimePoint now, Found how) noexcept;

  /// The answer of the last idle_began().
  Duration budget() const noexcept { return Duration(budget_); }
  /// No budget is longer: C + 2L, or Prices::most.
  Duration cap() const noexcept { return Duration(cap_); }
  /// One hit is worth so much: C + lambda * L.
  Duration price() const noexcept { return Duration(price_); }
  std::uint64_t probes() const noexcept { return probes_; }
  /// Time that probes spent and that hits did not earn back.
  Duration spent_on_probes() const noexcept { return Duration(probe_spent_); }
  /// What may still be lost before only probes spin: kPurse at most, 0 at least.
  Duration purse() const noexcept { return Duration(purse_); }

 private:
  static constexpr std::size_t kEdges = 16;
  // Half-octaves, in ns: a gap belongs to the first edge that is not below it.
  static constexpr std::array<std::int64_t, kEdges> kEdge = {
      1'000,  1'500,  2'000,  3'000,  4'000,  6'000,  8'000,   12'000,
      16'000, 24'000, 32'000, 48'000, 64'000, 96'000, 128'000, 192'000};
  static constexpr unsigned kDecay = 4, kProbeDecay = 3;  // by 1/16 and 1/8 with each gap
  static constexpr std::uint32_t kWeight = 1u << 20;      // of all gaps together
  // A budget has to save this part of the price at least: less is within what the histogram knows.
  static constexpr std::int64_t kMargin = 8;
  // For a probe to have a chance this part of the gaps has to be within the cap; or most sleeps are
  // no longer than two wake-ups that are: one's own, and the peer's, which a spin has to wait for.
  static constexpr std::uint32_t kHope = 4;

  std::int64_t best_budget() const noexcept;
  bool may_probe(TimePoint now) const noexcept;
  void learn(std::int64_t gap) noexcept;
  void learn_latency(std::int64_t passed) noexcept;
  void learn_latency_of_probe() noexcept;
  void learn_latency_of_hit(std::int64_t gap) noexcept;
  void learn_sleep(std::int64_t passed) noexcept;
  std::int64_t latency() const noexcept {
    const std::int64_t believed = prices_.sleep_latency.count();
    return prices_.latency_is_given ? believed : std::min(latency_bound_, believed);
  }
  void settle(std::int64_t gain) noexcept;
  void begin_probe() noexcept;
  void probes_pay() noexcept;
  void end_probe(TimePoint now) noexcept;

  void apply() noexcept;

  Prices prices_;
  std::int64_t price_ = 0, cap_ = 0;
  std::int64_t latency_bound_ = INT64_MAX;  // a wake-up was seen to take no longer
  bool allowed_ = true, idle_ = false, probing_ = false, retries_now_ = false;
  std::int64_t budget_ = 0;
  TimePoint began_{};
  std::array<std::uint32_t, kEdges + 1> weight_{};  // the last: longer
  std::array<std::uint64_t, kEdges> sum_{};         // weight * gap

  static constexpr unsigned kFirstSleeps =
      16;                         // the shortest of these is where usual_sleep_ begins
  std::int64_t usual_sleep_ = 0;  // about half of the sleeps without a spin are shorter
  unsigned slept_ = 0;            // kFirstSleeps at most
  unsigned short_sleeps_ = 0, streak_ = 0, retries_ = 0, vain_ = 0;

  std::int64_t purse_ = kPurse.count();
  unsigned probe_left_ = 0;
  std::uint32_t periods_ = 0, probe_periods_ = kProbePeriods;  // since the last probe, and to go
  std::int64_t probe_time_ = kProbeTime.count();
  TimePoint last_probe_{};
  bool started_ = false;
  // Of this probe: what it earned less what it lost, hits, their gaps.
  std::int64_t probe_gain_ = 0, gain_joined_ = 0;
  std::int64_t debt_ = 0;  // what probes in vain lost and hits have not earned since
  unsigned probe_hits_ = 0;
  std::array<std::int64_t, kProbeRun> gaps_{};
  std::int64_t probe_spent_ = 0;
  std::uint64_t probes_ = 0;
};

/// Whether a loop's machine has room to spin. Pure: it is told what the system says.
class SpinRoom {
 public:
  using Duration = std::chrono::nanoseconds;
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Seen {
    unsigned processors = 1;  ///< that this thread may use
    bool quota = false;       ///< the process may use less than one of them
    Duration spun{};          ///< so far
    Duration lost{};          ///< of it, while somebody else had the processor
  };
  static constexpr Duration kLookEvery = std::chrono::milliseconds(100);
  /// Others want the processor if they took this part of a spin, and at least so much between two
  /// looks. That the system's threads take it for a moment, to bring what is spun for, is no harm.
  static constexpr int kLostPercent = 40;
  static constexpr Duration kLeastLost = std::chrono::milliseconds(5);
  /// What lies between two looks of a spin, if it is as long as this, was somebody else's; with a
  /// look at descriptors and timers in between, or where the second finds work, which the system
  /// may have brought meanwhile, it takes the longer one.
  static constexpr Duration kTaken = std::chrono::microseconds(32);
  static constexpr Duration kTakenForSure = std::chrono::microseconds(250);
  /// For so long it does not spin after others wanted the processor; twice as long after each time
  /// that they want it again within it.
  static constexpr Duration kLeastRest = std::chrono::seconds(1);
  static constexpr Duration kMostRest = std::chrono::seconds(32);

  bool due(TimePoint now) const noexcept { return now >= next_look_; }
  /// Tells what the system said at `now`; returns whether the loop may spin.
  bool look(TimePoint now, const Seen& seen) noexcept;

 private:
  TimePoint next_look_{}, rests_until_{};
  Duration spun_{}, lost_{};
  Duration rest_ = kLeastRest;
};

}}  // namespace ae
