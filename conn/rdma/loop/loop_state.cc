// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/loop/loop_state.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "conn/core/connection_set.h"
#include "conn/kit/interruption.h"
#include "conn/rdma/device/orphans.h"
#include "conn/rdma/loop/clock.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// Before the loop sleeps, arm() polls for answers to requests just posted. After kLooks successive
// polls in vain, it does so only in one of kLooks iterations.
constexpr std::uint32_t kLooks = 16;

}  // namespace

LoopState* LoopState::find(ae::EventLoop& loop, const ConnectionType& type) {
  return static_cast<LoopState*>(loop.local(&type).get());
}

LoopState& LoopState::of(ae::EventLoop& loop, const ConnectionType& type) {
  ConnectionSet::of(loop);  // creates this set first, so that the LoopState is destroyed before it
  std::unique_ptr<ae::LoopLocal>& slot = loop.local(&type);
  if (!slot) slot = std::make_unique<LoopState>(loop, type);
  auto& state = static_cast<LoopState&>(*slot);
  if (state.inherited())
    throw VerbsError(Failure{std::make_error_code(std::errc::operation_not_supported),
                             "in a child of fork() rdma needs a loop that was made there"});
  return state;
}

LoopState::LoopState(ae::EventLoop& loop, const ConnectionType& type) : loop_(loop), type_(type) {
  loop_.add_source(*this);
  try {
    if (any_orphans()) maintenance_.start();
    loop_.add_file_event(cm_->fd(), ae::kReadable, [this](int, ae::Mask) {
      if (!inherited()) cm_events_.take(IterationBudget::Most::kShare);
    });
  } catch (...) {
    maintenance_.stop();
    loop_.remove_source(*this);
    throw;
  }
}

LoopState::~LoopState() {
  ConnectionSet::of(loop_).loop_ends();
  listeners_.loop_gone();
  if (!inherited()) reap(IterationBudget::Most::kAll);
  ConnectionSet::of(loop_).abandon(type_);
  leave_loop();
  if (inherited()) return;
  Orphans left{cm_, {}, {}, {}};
  devices_.give_up_parked(left);
  adopt(std::move(left));
}

void LoopState::leave_loop() noexcept {
  wheel_.stop();
  maintenance_.stop();
  preparation_.stop();
  loop_.remove_source(*this);
  loop_.remove_file_event(cm_->fd(), ae::kReadable);
  devices_.leave_loop();
}

void LoopState::after_fork() noexcept { leave_loop(); }

ae::TimePoint LoopState::ask_time() const {
  if (pumping_) return clock_now();
  const ae::TimePoint now = loop_.now();
  if (keeps_time_) now_ = now;
  time_known_ = keeps_time_;
  return now;
}

// --- connections for which something is due ------------------------------------------------------

void LoopState::add(LoopConnection& connection) {
  maintenance_.start();
  users_.attach(connection);
  look_at(connection, connection.next_tick());
}

void LoopState::remove(LoopConnection& connection) noexcept {
  wheel_.remove(connection);
  users_.remove(connection);
}

void LoopState::forget(LoopConnection& connection) noexcept {
  wheel_.remove(connection);
  users_.forget(connection);
}

void LoopState::reap(IterationBudget::Most most) {
  for (bool first = true; users_.has_to_reap() && iteration_.allows(most, first); first = false) {
    const IterationBudget::Spending spending(iteration_);
    users_.take_to_reap().reap();
  }
  if (!devices_.has_to_clear()) return;
  devices_.release_parked(iteration_, most);
  devices_.drop_lost(iteration_);
  devices_.look_if_clear();
}

// --- work in each iteration ----------------------------------------------------------------------

std::size_t LoopState::process_pending() {
  iteration_.begin();
  if (listeners_.retry_if_asked()) preparation_.retry();
  {
    const SameTime same_time(*this);
    poll_more_ = devices_.poll();
    wheel_.run_due(now());
    if (users_.has_to_reap() || devices_.has_to_clear()) reap(IterationBudget::Most::kShare);
    if (users_.has_to_wake()) users_.wake_some();
  }
  return ready_.process_pending();
}

void LoopState::flush() {
  if (!users_.has_to_flush()) return;
  const SameTime same_time(*this);
  if (users_.post_due()) posted_ = true;
}

bool LoopState::arm() {
  const SameTime same_time(*this);
  // Polls once before arming, because a fast peer may already have answered the requests just
  // posted; then the loop need not arm the queues and sleep. After kLooks polls that found nothing,
  // polls here only in one of kLooks iterations.
  if (std::exchange(posted_, false) &&
      (looks_missed_ < kLooks || iteration_number() % kLooks == 0)) {
    poll_more_ = devices_.poll();
    const bool found = has_pending() || users_.has_to_flush();
    looks_missed_ = found ? 0 : looks_missed_ + 1;
    if (found) return false;
  }
  const bool quiet = devices_.arm();
  return quiet && !has_pending() && !users_.has_to_flush();
}

const ae::Spin* LoopState::spin() const {
  return wheel_.empty() || spin_.mode == ae::Spin::Mode::kNo ? nullptr : &spin_;
}

bool LoopState::has_pending_now() { return devices_.poll_now() != 0 || has_pending(); }

void LoopState::catch_up(IterationBudget::Most most) {
  if (!inherited()) cm_events_.take(most);
  devices_.drain();
}

void LoopState::drain_cm() {
  if (!inherited()) cm_events_.drain();
}

// --- blocking operations -------------------------------------------------------------------------

void LoopState::pump(const std::function<bool()>& done, ae::TimePoint deadline) {
  if (inherited()) return;
  struct Pumping {
    bool& flag;
    const bool before = std::exchange(flag, true);
    ~Pumping() { flag = before; }
  } pumping{pumping_};
  for (;;) {
    iteration_.extend();
    cm_events_.take(IterationBudget::Most::kAll);
    poll_more_ = devices_.poll();
    reap(IterationBudget::Most::kShare);
    if (done()) return;
    flush();
    const ae::TimePoint now = clock_now();
    if (now >= deadline || Interruption::ends()) return;
    // The loop's timers do not run here, so their work is done here: other peers still expect
    // messages, such as keepalives.
    wheel_.collect(now);
    wheel_.run_due(now);
    maintenance_.run_if_due(now);
    const ae::TimePoint listens = listeners_.retry_if_due(now);
    if (users_.has_to_wake()) users_.wake_some();
    // Connections whose handlers are due (the ready list) do not prevent sleeping, because handlers
    // do not run here.
    bool quiet = !poll_more_ && !users_.has_to_reap() && !users_.has_to_wake();
    quiet = devices_.arm() && quiet;
    quiet = quiet && !users_.has_to_reap() && !users_.has_to_flush() && !wheel_.has_due();
    const ae::TimePoint pace = users_.next_pace();
    ae::TimePoint wake = std::min({deadline, maintenance_.due(), listens, pace});
    if (const auto next = wheel_.next(now)) wake = std::min(wake, *next);
    devices_.wait(cm_->fd(), quiet ? wake - now : ae::Duration::zero());
    if (pace != ae::TimePoint::max() && users_.flush_paced(clock_now())) loop_.nudge();
  }
}

}}}  // namespace conn::rdma
