// SPDX-License-Identifier: BSD-3-Clause
#include "ae/libev/libev_timers.h"

#include <chrono>

namespace ae { inline namespace AECONN_ABI {
namespace {

// In seconds; added to each delay, so that libev's timer does not expire early. libev keeps time in
// doubles, whose rounding error after a year of uptime is smaller than this.
constexpr double kRounding = 20e-9;

}  // namespace

LibevTimers::LibevTimers(LibevCore& core) : LoopTimers(core), below_(core) {
  ev_init(&timer_, &LibevTimers::on_expiry);
  timer_.data = this;
}

void LibevTimers::on_expiry(struct ev_loop*, ev_timer* timer, int) {
  LibevTimers& self = *static_cast<LibevTimers*>(timer->data);
  self.expire();
  self.below_.queue_tail();
}

void LibevTimers::sync_timer() {
  changed_ = false;
  if (!queue_.has_waiting()) {
    expired_ = false;
    ev_timer_stop(below_.loop, &timer_);
    return;
  }
  if (expired_) return;
  const TimePoint next = queue_.next();
  if (ev_is_active(&timer_) && next == set_for_) return;
  ev_timer_stop(below_.loop, &timer_);
  const TimePoint now = std::chrono::steady_clock::now();
  if (next <= now) {
    expired_ = true;
    return;
  }
  ev_now_update(below_.loop);
  ev_timer_set(&timer_, static_cast<double>((next - now).count()) * 1e-9 + kRounding, 0.0);
  ev_timer_start(below_.loop, &timer_);
  set_for_ = next;
}

}}  // namespace ae
