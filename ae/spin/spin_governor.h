// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// SpinGovernor decides how long an idle loop spins before it sleeps. Pure logic: the caller passes
// the time; the classes here do not allocate and make no system calls.
//
// Let g be the gap, the time from the start of an idle period until work arrives. Spinning through
// it takes g of CPU time. Sleeping takes C, the CPU time of one sleep and its wake-up, and adds L
// of latency. The governor remembers the gaps of about the last 16 idle periods and spins up to the
// budget b that would have saved most on them:
//
//   below(b) * price - spent(b) - above(b) * b       with price = C + lambda * L
//
//   below, above  the number of gaps up to b, and of longer gaps
//   spent         the sum of the gaps up to b
//   lambda        the CPU time worth spending to save one microsecond of latency; 0: none
//
// If two loops answer each other and both sleep, neither can see that spinning would pay, because
// the other's wake-up lengthens each gap. Therefore a loop occasionally probes: it spins in a
// series of idle periods. The peer sees its sleeps become shorter, and joins with a probe of its
// own. An interruption of two spinning loops, such as a system tick, makes both sleep; so after a
// series of hits (spins that found work), a miss is followed by a few long spins, so that both spin
// again. A purse, an amount of CPU time, limits the loss by wrong guesses.

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
    /// C in the formulas: CPU time that one sleep and its wake-up cost.
    Duration sleep_cost = std::chrono::microseconds(5);
    /// L in the formulas: latency that a sleep adds.
    Duration sleep_latency = std::chrono::microseconds(10);
    /// Lambda in the formulas: us of CPU time worth spending to save 1 us of latency; 0: none.
    unsigned latency_weight = 0;
    Duration most = Spin{}.most;  ///< length of the longest allowed spin
    /// True if sleep_latency is fixed. If false, the governor lowers it when it observes shorter
    /// wake-ups.
    bool latency_is_given = false;
    friend bool operator==(const Prices&, const Prices&) = default;
  };
  enum class Found : std::uint8_t { kSpun, kSlept };

  static constexpr Duration kPurse = std::chrono::milliseconds(1);
  /// Number of idle periods in one probe (a series of trial spins).
  static constexpr unsigned kProbeRun = 32;
  /// The minimum distance of two probes (series of trial spins) is a number of idle periods and a
  /// time, initially kProbePeriods and kProbeTime. After each probe in vain both are multiplied by
  /// four (by two while below the initial values), up to kMostProbePeriods and kMostProbeTime.
  static constexpr std::uint32_t kProbePeriods = 256, kMostProbePeriods = 16384;
  static constexpr Duration kProbeTime = std::chrono::milliseconds(100),
                            kMostProbeTime = std::chrono::milliseconds(6400);
  /// A probe (a series of trial spins) ends early after kVainSpins consecutive spins that found no
  /// work, because the peer does not react to them. It also ends after half of its spins if the
  /// spins after the first kJoined ones have lost more than they earned.
  static constexpr unsigned kVainSpins = 4, kJoined = 8;
  /// A probe (a series of trial spins) that saved the price of at least kWorthAProbe sleeps reduces
  /// the distance to the next probe to kAgainPeriods idle periods and kAgainTime. So does a spin
  /// that found work, if it is at least the kStreak-th in a row, if it has saved more than half the
  /// price of a sleep, and if spins have saved again what earlier probes had lost.
  static constexpr std::int64_t kWorthAProbe = 4;
  static constexpr std::uint32_t kAgainPeriods = 64;
  static constexpr Duration kAgainTime = std::chrono::milliseconds(5);
  /// kShortSleeps sleeps in a row that are much shorter than usual (by more than half the CPU time
  /// of a sleep) suggest that the peer now spins. To learn whether spinning pays here, too, the
  /// next probe (a series of trial spins) comes after 1/kJoinSooner of the usual wait.
  static constexpr unsigned kShortSleeps = 4;
  static constexpr unsigned kJoinSooner = 4;
  /// If a spin finds no work after kStreak consecutive spins that found some, this may be an
  /// accident: kRetries spins of the longest allowed length follow. They end early if the peer
  /// pauses, or if purse(), the CPU time that spins may still lose, is less than half of kPurse or
  /// than one such spin.
  static constexpr unsigned kStreak = 16, kRetries = 8;

  SpinGovernor() noexcept { set(Prices{}); }

  /// Sets the costs of sleeping from which the governor calculates how long to spin. They take
  /// effect in the next idle period.
  void set(const Prices& prices) noexcept;
  const Prices& prices() const noexcept { return prices_; }
  /// Allows or forbids spinning. While spinning is forbidden, idle_began() returns 0, and idle
  /// periods are not recorded.
  void allow(bool allowed) noexcept;
  bool allowed() const noexcept { return allowed_; }

  /// Begins an idle period, in which the loop waits for work. Returns how long the loop may spin;
  /// 0: the loop must sleep at once.
  Duration idle_began(TimePoint now) noexcept;
  /// Ends the idle period because work arrived at time `now`. `how`: whether it was found while
  /// spinning or after a sleep.
  void ended(TimePoint now, Found how) noexcept;

  /// How long the loop may spin in the current idle period: the last result of idle_began().
  Duration budget() const noexcept { return Duration(budget_); }
  /// The longest time that the loop may spin: the CPU time of a sleep plus twice its latency (C +
  /// 2L), or Prices::most if that is less.
  Duration cap() const noexcept { return Duration(cap_); }
  /// The value of one spin that finds work, which is the cost of the sleep that it saves: C +
  /// lambda * L.
  Duration price() const noexcept { return Duration(price_); }
  std::uint64_t probes() const noexcept { return probes_; }
  /// The total CPU time lost by those spins of probes (series of trial spins) that cost more than
  /// they saved.
  Duration spent_on_probes() const noexcept { return Duration(probe_spent_); }
  /// The CPU time that spins other than trial spins may still lose: at least 0, at most kPurse.
  Duration purse() const noexcept { return Duration(purse_); }

 private:
  static constexpr std::size_t kEdges = 16;
  // The upper edges of the bins of a histogram of gaps (times until work arrives), two for each
  // doubling, in ns. A gap belongs to the first bin whose edge is not below it.
  static constexpr std::array<std::int64_t, kEdges> kEdge = {
      1'000,  1'500,  2'000,  3'000,  4'000,  6'000,  8'000,   12'000,
      16'000, 24'000, 32'000, 48'000, 64'000, 96'000, 128'000, 192'000};
  // Each new gap (time until work arrived) reduces the weight of older ones by 1/16 (2 to the power
  // -kDecay), in a probe by 1/8.
  static constexpr unsigned kDecay = 4, kProbeDecay = 3;
  // Sum of the weights of all recorded gaps (times until work arrived).
  static constexpr std::uint32_t kWeight = 1u << 20;
  // A spin must save at least 1/kMargin of the price of a sleep (see price()); smaller savings are
  // within the error of the histogram.
  static constexpr std::int64_t kMargin = 8;
  // A probe (a series of trial spins) is started only if spins may find work: if more than 1/kHope
  // of the recorded gaps are no longer than the longest allowed spin, or if the usual sleep is at
  // most twice as long as that spin. If both loops sleep, a sleep lasts for two wake-ups, this
  // loop's and the peer's, and a spin only has to wait for the peer's.
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
  // Upper bound of a sleep's latency in ns, from observed wake-ups; initially there is no bound.
  std::int64_t latency_bound_ = INT64_MAX;
  bool allowed_ = true, idle_ = false, probing_ = false, retries_now_ = false;
  std::int64_t budget_ = 0;
  TimePoint began_{};
  // Total weight of the gaps (times without work) in each bin of the histogram. The last bin is for
  // gaps longer than all edges.
  std::array<std::uint32_t, kEdges + 1> weight_{};
  // For each bin: sum of weight * length over the gaps in it, in ns.
  std::array<std::uint64_t, kEdges> sum_{};

  // usual_sleep_ begins as the length of the shortest of the first kFirstSleeps sleeps.
  static constexpr unsigned kFirstSleeps = 16;
  // Running median of the lengths of sleeps that no spin preceded, in ns.
  std::int64_t usual_sleep_ = 0;
  // Number of sleeps without a preceding spin that were seen, at most kFirstSleeps.
  unsigned slept_ = 0;
  unsigned short_sleeps_ = 0, streak_ = 0, retries_ = 0, vain_ = 0;

  std::int64_t purse_ = kPurse.count();
  unsigned probe_left_ = 0;
  // The number of idle periods since the last probe (a series of trial spins), and the number
  // required before the next probe.
  std::uint32_t periods_ = 0, probe_periods_ = kProbePeriods;
  std::int64_t probe_time_ = kProbeTime.count();
  TimePoint last_probe_{};
  bool started_ = false;
  // What the current probe has earned less what it has lost, in ns of CPU time: now, and after its
  // first kJoined spins.
  std::int64_t probe_gain_ = 0, gain_joined_ = 0;
  // CPU time lost by series of trial spins that later spins have not earned back yet, in ns.
  std::int64_t debt_ = 0;
  // Number of the current probe's spins that found work; the array gaps_ has their lengths in ns.
  unsigned probe_hits_ = 0;
  std::array<std::int64_t, kProbeRun> gaps_{};
  std::int64_t probe_spent_ = 0;
  std::uint64_t probes_ = 0;
};

/// Decides whether the system has CPU to spare for spinning. Pure logic: the caller passes in what
/// the system reports.
class SpinRoom {
 public:
  using Duration = std::chrono::nanoseconds;
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Seen {
    unsigned processors = 1;  ///< number of processors that this process may use
    bool quota = false;       ///< true if a CPU quota below one processor applies to this process
    Duration spun{};          ///< total time that the loop has spun so far
    Duration lost{};          ///< the part of `spun` in which another thread had the processor
  };
  static constexpr Duration kLookEvery = std::chrono::milliseconds(100);
  /// If other threads took the processor for more than kLostPercent of the time spun since the last
  /// look() call, and for at least kLeastLost, they need it, and the loop stops spinning. Kernel
  /// threads that take it briefly, to deliver the work that the spin waits for, do no harm.
  static constexpr int kLostPercent = 40;
  static constexpr Duration kLeastLost = std::chrono::milliseconds(5);
  /// If two polls of a spin are at least kTaken apart, another thread had the processor in between.
  /// The limit is kTakenForSure if descriptors and timers were polled in between, or if the second
  /// poll finds work, which the kernel may have delivered meanwhile.
  static constexpr Duration kTaken = std::chrono::microseconds(32);
  static constexpr Duration kTakenForSure = std::chrono::microseconds(250);
  /// How long the loop does not spin after other threads needed the processor (a rest). If they
  /// need it again soon, within twice the length of a rest after its end, the next rest is twice as
  /// long, up to kMostRest.
  static constexpr Duration kLeastRest = std::chrono::seconds(1);
  static constexpr Duration kMostRest = std::chrono::seconds(32);

  bool due(TimePoint now) const noexcept { return now >= next_look_; }
  /// Evaluates what the system reported at time `now`. Returns whether the loop may spin from now
  /// on.
  bool look(TimePoint now, const Seen& seen) noexcept;

 private:
  TimePoint next_look_{}, rests_until_{};
  Duration spun_{}, lost_{};
  Duration rest_ = kLeastRest;
};

}}  // namespace ae
