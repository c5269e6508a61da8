#include "ae/libev_timers.h"

#include <utility>

namespace ae {
namespace {

// libev keeps time in doubles; this is more than they lose in a year of uptime, so that no timer
// is early.
constexpr double kRounding = 20e-9;

double seconds(Duration delay) {
  return delay <= Duration::zero() ? 0.0 : static_cast<double>(delay.count()) * 1e-9 + kRounding;
}

}  // namespace

TimerId LibevTimers::add(Duration delay, TimeHandler handler) {
  if (!handler) throw LoopError("a time event needs a handler");
  const TimerId id = ++last_id_;
  Event& event = events_[id];
  event.id = id;
  event.handler = std::move(handler);
  event.owner = this;
  ev_init(&event.timer, &LibevTimers::on_expiry);
  event.timer.data = &event;
  arm(event, delay);
  return id;
}

bool LibevTimers::remove(TimerId id) {
  const auto at = events_.find(id);
  if (at == events_.end()) return false;
  Event& event = at->second;
  if (event.running) return !std::exchange(event.removed, true);
  forget(id);
  return true;
}

void LibevTimers::run_due(std::size_t limit) {
  for (; limit != 0 && has_due(); --limit) {
    Event& event = static_cast<Event&>(*due_.next);
    unlink(event);
    fire(event);
  }
}

void LibevTimers::clear() {
  while (!events_.empty()) forget(events_.begin()->first);
}

void LibevTimers::on_expiry(struct ev_loop*, ev_timer* timer, int) {
  Event& event = *static_cast<Event*>(timer->data);
  Link& due = event.owner->due_;
  event.prev = due.prev;
  event.next = &due;
  due.prev->next = &event;
  due.prev = &event;
  event.owner->core_.queue_tail();
}

void LibevTimers::unlink(Event& event) noexcept {
  event.prev->next = event.next;
  event.next->prev = event.prev;
  event.prev = event.next = &event;
}

// From the real time, not from the time of the iteration: a handler that took long must not make
// the timers early that it adds.
void LibevTimers::arm(Event& event, Duration delay) noexcept {
  ev_now_update(core_.loop);
  ev_timer_set(&event.timer, seconds(delay), 0.0);
  ev_timer_start(core_.loop, &event.timer);
}

void LibevTimers::fire(Event& event) {
  core_.count_handler();
  event.running = true;
  Duration next = kNoMore;
  try {
    next = event.handler();
  } catch (...) {
    forget(event.id);
    throw;
  }
  event.running = false;
  if (event.removed || next == kNoMore) {
    forget(event.id);
  } else {
    arm(event, next);
  }
}

void LibevTimers::forget(TimerId id) {
  auto node = events_.extract(id);  // first: what the handler owns may come back here as it dies
  Event& event = node.mapped();
  ev_timer_stop(core_.loop, &event.timer);
  unlink(event);
}

}  // namespace ae
