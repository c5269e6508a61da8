// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/loop/tick_dispatch.h"

#include <new>
#include <utility>

#include "conn/rdma/loop/clock.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// The largest number of connections whose periodic checks are made in one iteration.
constexpr std::size_t kDueInTurn = 256;

}  // namespace

void TickDispatch::look_at(LoopConnection& user, ae::TimePoint due) noexcept {
  const ae::TimePoint when = wheel_.put(user, due, clock_now());
  if (when != ae::TimePoint::max()) wake_at(when);
}

// Sets the timer of the periodic checks for `when`, unless it is set for an earlier time. If there
// is no memory for the timer, the loop does not sleep until it could be created (must_not_sleep()).
void TickDispatch::wake_at(ae::TimePoint when) noexcept {
  if (timer_ != 0 && when >= wakes_) return;
  wakes_ = when;
  if (timer_ != 0 && loop_.again(timer_, when)) return;
  try {
    timer_ = loop_.add_time_event(when, [this] { return on_timer(); });
  } catch (const std::bad_alloc&) {
  }
}

ae::Duration TickDispatch::on_timer() {
  const ae::TimePoint now = clock_now();
  wheel_.collect(now);
  const auto next = wheel_.has_due() ? std::nullopt : wheel_.next(now);
  if (!next) {
    timer_ = 0;  // this timer ends; the next look_at() sets a new one
    return ae::kNoMore;
  }
  wakes_ = *next;
  return *next - now;
}

void TickDispatch::run_some(ae::TimePoint began) {
  // If the timer is due but has not run, because handlers of other timers are slow, collects the
  // due connections here.
  if (timer_ != 0 && !wheel_.has_due() && wakes_ <= began) wheel_.collect(clock_now());
  if (!wheel_.has_due()) {
    if (timer_ != 0) return;
    if (const auto next = wheel_.next(clock_now())) wake_at(*next);
    return;
  }
  const ae::TimePoint now = clock_now();
  for (std::size_t left = kDueInTurn; left != 0; --left) {
    TickItem* item = wheel_.take();
    if (item == nullptr) break;
    auto& user = static_cast<LoopConnection&>(*item);
    if (item->due() > now)
      look_at(user, item->due());
    else
      user.on_tick(now, now - item->due());
  }
  if (const auto next = wheel_.next(now); next && !wheel_.has_due()) wake_at(*next);
}

void TickDispatch::collect(ae::TimePoint now) noexcept {
  if (const auto next = wheel_.next(now); next && *next <= now) wheel_.collect(now);
}

void TickDispatch::stop() noexcept {
  if (timer_ != 0) loop_.remove_time_event(std::exchange(timer_, 0));
}

}}}  // namespace conn::rdma
