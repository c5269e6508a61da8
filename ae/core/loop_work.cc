// SPDX-License-Identifier: BSD-3-Clause
#include "ae/core/loop_work.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <iterator>
#include <string>
#include <utility>

namespace ae { inline namespace AECONN_ABI {
namespace {

// The number of timers, and the number of posted functions, that may run before the loop polls its
// descriptors again.
constexpr std::size_t kTimersPerIteration = 1000;
constexpr std::size_t kPostsPerIteration = 1000;
// The number of handlers of sources that may run before the loop polls its descriptors again.
constexpr std::size_t kServedPerIteration = 64;
// How often a spinning loop polls descriptors and timers: every kSpinLooks if only sources asked it
// to spin, and every kSpinLooksForBoth if the loop's owner asked too. If only the owner asked, it
// polls them continuously.
constexpr Duration kSpinLooks = std::chrono::microseconds(20);
constexpr Duration kSpinLooksForBoth = std::chrono::microseconds(2);
// If a batch of posted functions has grown beyond this capacity, its memory is released after use.
constexpr std::size_t kPostsKept = 16384;

}  // namespace

LoopWork::LoopWork(LoopCore& core, LoopTimers& timers, Poster::Queue::Wake wake, void* context)
    : sources(core),
      queue(std::make_shared<Poster::Queue>(wake, context)),
      core_(core),
      timers_(timers) {}

void LoopWork::refuse_reentry(const char* what) {
  throw LoopError(std::string(what) + " called from inside a handler of its own loop");
}

HookId LoopWork::add_hook(HookList& list, std::function<void()>&& hook) {
  if (!hook) throw LoopError("a hook needs a function");
  list.add(++last_hook_, std::move(hook));
  core_.stir();
  return last_hook_;
}

std::unique_ptr<LoopLocal>& LoopWork::local(const void* key) {
  for (Local& entry : locals_) {
    if (entry.key == key) return entry.object;
  }
  return locals_.emplace_back(Local{key, nullptr}).object;
}

// --- the part of an iteration before the sleep: sources and spinning -----------------------------

bool LoopWork::serve_sources(bool after_events) {
  if (after_events) idle.work_came();
  SourceList::Visit visit(sources);
  // When the loop has to poll its descriptors, however much work its spins find; set by the first.
  TimePoint look{};
  bool found = false;  // whether a spin has found work
  for (std::size_t total = 0;;) {
    const std::size_t served = visit.process_pending();
    if (served != 0) idle.work_came();
    core_.ran += served;
    total += served;
    if (core_.allows(kCallBeforeSleep)) before_hooks.run();
    visit.flush();
    if (core_.allows(kDontWait) || stopping()) return false;
    if (visit.has_pending() || other_work_waiting()) return false;
    // The caller of process_events() may be waiting for the work that a source has just done, so
    // the loop does not sleep.
    if (single && (served != 0 || found)) return false;
    Then then = Then::kSleep;
    if (own_spin_.mode == Spin::Mode::kNo && !idle.on()) {
      if (sources.idle()) return true;
      if (!hosted && visit.has_spin()) then = may_spin(after_events, visit, look);
    } else {
      then = may_spin(after_events, visit, look);
    }
    if (then == Then::kPoll) return false;
    if (then == Then::kServe) {
      found = true;
      if (total >= kServedPerIteration || !core_.has_time()) return false;
      continue;
    }
    if (visit.arm() && !visit.has_pending() && !other_work_waiting()) return true;
    idle.vetoed();
    // Work that arrived while arm() of the sources was called is served at once: polling the
    // descriptors first would cost more. The number of handlers is limited, so that descriptors are
    // not starved.
    if (single || total >= kServedPerIteration || served == 0 || other_work_waiting()) return false;
    if (!core_.has_time()) return false;
  }
}

// Destroys the objects that were deferred while the sources were served. If the loop then has no
// other work, calls serve_sources() again: the deferred objects had kept the loop from sleeping.
void LoopWork::serve_sources_again(bool after_events, bool& may_sleep) {
  deferred_.destroy_all();
  if (SourceList::Visit(sources).has_pending() || other_work_waiting()) return;
  core_.guarded([&] { may_sleep = serve_sources(after_events); });
}

// Spins if sources or the loop's owner ask for it. `look`: the time at which an earlier spin of
// this visit had to end so that descriptors are polled; the first spin sets it.
[[gnu::noinline]] LoopWork::Then LoopWork::may_spin(bool after_events, SourceList::Visit& visit,
                                                    TimePoint& look) {
  if (hosted) return Then::kSleep;
  Spin asked = own_spin_;
  const bool for_sources = visit.add_spin(asked);
  if (asked.mode == Spin::Mode::kNo && !idle.on()) return Then::kSleep;
  const TimePoint moment = std::chrono::steady_clock::now();
  if (!(asked == idle.asked())) {
    idle.ask(asked, moment);
    core_.stir();
  }
  if (!idle.on()) return Then::kSleep;
  if (idle.spinning())
    idle.looks(moment, SpinRoom::kTakenForSure);
  else
    idle.begin(moment);
  if (moment < idle.spins_until()) {
    // If handlers have just run, the loop polls its descriptors before it spins: they may have new
    // data, which a spin would only delay.
    if (after_events || (look != TimePoint{} && moment >= look)) {
      spin_looks = true;
      return Then::kPoll;
    }
    const bool for_descriptors = own_spin_.mode != Spin::Mode::kNo;
    if (look == TimePoint{})
      look = moment + (!for_descriptors ? kSpinLooks
                       : for_sources    ? kSpinLooksForBoth
                                        : Duration::zero());
    const Then then = spin(moment, std::min(idle.spins_until(), look), visit);
    if (then != Then::kSleep) return then;
  }
  idle.end_spin(std::max(moment, idle.spins_until()));
  return Then::kSleep;
}

// Spins until `until`, or until work arrives; the clock was read last at `moment`. Work of sources
// is served at once, since polling the descriptors first would cost more than the work. The caller
// spins in several such pieces; between two of them the loop runs an iteration without sleeping,
// which polls the descriptors and timers that a spin does not check.
LoopWork::Then LoopWork::spin(TimePoint moment, TimePoint until, SourceList::Visit& visit) {
  for (;;) {
    const bool has_pending = visit.has_pending_now();
    if (has_pending || queue->pending()) {
      // Normally the time of the last poll counts as the time at which the work was found. If
      // another thread had the processor since that poll, the work may have arrived later, so the
      // current time is used.
      const TimePoint found = std::chrono::steady_clock::now();
      idle.work_came(idle.looks(found, SpinRoom::kTakenForSure) ? found : moment);
      core_.set_time(found);
      return has_pending ? Then::kServe : Then::kPoll;
    }
    moment = std::chrono::steady_clock::now();
    idle.looks(moment);
    if (moment >= until) {
      spin_looks = moment < idle.spins_until();
      return spin_looks ? Then::kPoll : Then::kSleep;
    }
    relax_processor();
  }
}

// --- the part after the sleep: hooks, posted functions, timers -----------------------------------

void LoopWork::run_after_hooks() {
  if (core_.may_run(kCallAfterSleep)) core_.guarded([this] { after_hooks.run(); });
}

void LoopWork::run_posts() {
  core_.stir();
  if (!core_.aborting()) core_.guarded([this] { run_posts(kPostsPerIteration); });
}

void LoopWork::run_timers() {
  if (core_.may_run(kTimeEvents)) core_.guarded([this] { timers_.run_due(kTimersPerIteration); });
}

// Runs at most `limit` posted functions. Functions that they post wait for the next call.
void LoopWork::run_posts(std::size_t limit) {
  if (next_post_ == posts_.size()) {
    recycle_posts();
    if (!queue->pending()) return;
    queue->take(posts_);
  }
  for (bool first = true; limit != 0 && next_post_ < posts_.size(); --limit) {
    if (!std::exchange(first, false) && !core_.has_time()) break;
    const auto fn = std::move(posts_[next_post_++]);
    core_.count_handler();
    if (fn) fn();
  }
  if (next_post_ == posts_.size()) recycle_posts();
}

void LoopWork::recycle_posts() noexcept {
  if (posts_.capacity() > kPostsKept) posts_ = {};
  posts_.clear();
  next_post_ = 0;
}

void LoopWork::end_posts_and_locals() {
  assert(!core_.in_handler() && "an event loop must not be destroyed from inside its handlers");
  queue->enter();
  Poster::Queue::Functions last_posts;
  queue->close(last_posts);
  // In a child of fork(), the posted functions that have not run yet are skipped, because the
  // parent process runs them.
  if (inherited()) next_post_ = posts_.size();
  // Exceptions of the posted functions are dropped: the loop is being destroyed, so no caller is
  // left to receive them. The current batch runs first, then the functions that were still queued:
  // joining the two lists would need memory.
  const auto run_rest = [this] {
    while (next_post_ < posts_.size()) core_.guarded([this] { run_posts(posts_.size()); });
  };
  run_rest();
  posts_.swap(last_posts);
  next_post_ = 0;
  run_rest();
  while (!locals_.empty()) {
    const auto last = std::move(locals_.back().object);
    if (!last) locals_.pop_back();
  }
}

}}  // namespace ae
