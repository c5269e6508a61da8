// SPDX-License-Identifier: BSD-3-Clause
// Timed work of a loop's RDMA state: scheduled checks of connections, maintenance, and blocking
// operations, during which the loop's own timers do not run.

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "conn/kit/interruption.h"
#include "conn/rdma/device/orphans.h"
#include "conn/rdma/loop/loop_state.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

ae::TimePoint clock_now() { return std::chrono::steady_clock::now(); }

// Connections checked in one iteration because they are due.
constexpr std::size_t kDueInTurn = 256;
constexpr ae::Duration kMaintenanceInterval = std::chrono::seconds(1);
constexpr ae::Duration kNextPart = std::chrono::milliseconds(10);
// Interval at which a port that is down is queried.
constexpr ae::Duration kPorts = std::chrono::milliseconds(250);

}  // namespace

ae::TimePoint LoopState::now() const { return pumping_ ? clock_now() : loop_.now(); }

// --- connections that are due --------------------------------------------------------------------

void LoopState::look_at(LoopUser& connection, ae::TimePoint due) noexcept {
  const ae::TimePoint when = wheel_.put(connection, due, clock_now());
  if (when != ae::TimePoint::max()) wake_wheel_at(when);
}

// Without memory for a timer, the loop does not sleep until there is some (has_pending()).
void LoopState::wake_wheel_at(ae::TimePoint when) noexcept {
  if (wheel_timer_ != 0 && when >= wheel_wakes_) return;
  wheel_wakes_ = when;
  if (wheel_timer_ != 0 && loop_.again(wheel_timer_, when)) return;
  try {
    wheel_timer_ = loop_.add_time_event(when, [this] { return on_wheel_timer(); });
  } catch (const std::bad_alloc&) {
  }
}

ae::Duration LoopState::on_wheel_timer() {
  const ae::TimePoint now = clock_now();
  wheel_.collect(now);
  const auto next = wheel_.has_due() ? std::nullopt : wheel_.next(now);
  if (!next) {
    wheel_timer_ = 0;  // due connections are scheduled again by their tick
    return ae::kNoMore;
  }
  wheel_wakes_ = *next;
  return *next - now;
}

void LoopState::turn_wheel() {
  // The timer may be due but delayed by other timers, whose handlers may be slow.
  if (wheel_timer_ != 0 && !wheel_.has_due() && wheel_wakes_ <= loop_.now())
    wheel_.collect(clock_now());
  if (!wheel_.has_due()) {
    if (wheel_timer_ != 0) return;
    if (const auto next = wheel_.next(clock_now())) wake_wheel_at(*next);
    return;
  }
  const ae::TimePoint now = clock_now();
  for (std::size_t left = kDueInTurn; left != 0; --left) {
    TickItem* item = wheel_.take();
    if (item == nullptr) break;
    auto& connection = static_cast<LoopUser&>(*item);
    if (item->due() > now)
      look_at(connection, item->due());
    else
      connection.on_tick(now, now - item->due());
  }
  if (const auto next = wheel_.next(now); next && !wheel_.has_due()) wake_wheel_at(*next);
}

// --- once a second -------------------------------------------------------------------------------

void LoopState::start_maintenance() {
  if (maintenance_timer_ != 0) return;
  maintenance_due_ = clock_now() + kMaintenanceInterval;
  maintenance_timer_ = loop_.add_time_event(kMaintenanceInterval, [this]() -> ae::Duration {
    run_maintenance();
    if (maintenance_pending_) return kNextPart;
    const auto at_rest = [](const auto& context) { return context->at_rest(); };
    if (attached_connections_ != 0 || any_orphans() || !pages_.all_at_rest() ||
        !std::all_of(contexts_.begin(), contexts_.end(), at_rest))
      return kMaintenanceInterval;
    maintenance_timer_ = 0;
    return ae::kNoMore;
  });
}

void LoopState::run_maintenance() noexcept {
  const ae::TimePoint now = clock_now();
  maintenance_due_ = now + kMaintenanceInterval;
  // Without an id, the removal of a device is not reported, and it would wait for us.
  if (wheel_.size() == 0 && listeners_.empty()) drop_idle_contexts();
  // NOLINTNEXTLINE(modernize-loop-convert): the list may change meanwhile
  for (std::size_t i = 0; i < contexts_.size(); ++i) {
    contexts_[i]->tick(now);
    contexts_[i]->tell_of_ports(now);
  }
  try {
    watch_ports();
  } catch (const std::bad_alloc&) {  // tries again in a second
  }
  look_after_orphans();
  maintenance_pending_ = pages_.tick_all(now);
  memory_came_back_ = true;  // other loops may have given memory back
}

// --- ports ---------------------------------------------------------------------------------------

void LoopState::watch_ports() {
  const auto down = [](const auto& context) {
    return !context->lost() && context->device().any_port_down();
  };
  if (port_timer_ != 0 || std::none_of(contexts_.begin(), contexts_.end(), down)) return;
  // Not called directly, because the caller may be ending a connection.
  port_timer_ = loop_.add_time_event(ae::Duration::zero(), [this, down]() -> ae::Duration {
    // NOLINTNEXTLINE(modernize-loop-convert): the list may change meanwhile
    for (std::size_t i = 0; i < contexts_.size(); ++i) contexts_[i]->tell_of_ports(clock_now());
    if (std::any_of(contexts_.begin(), contexts_.end(), down)) return kPorts;
    port_timer_ = 0;
    return ae::kNoMore;
  });
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
    spent_ = {};
    on_cm_readable(Most::kAll);
    take_completions();
    reap(Most::kShare);
    if (done()) return;
    flush();
    const ae::TimePoint now = clock_now();
    if (now >= deadline || Interruption::ends()) return;
    // The loop's timers do not run here, and other peers still expect messages from us.
    if (const auto next = wheel_.next(now); next && *next <= now) wheel_.collect(now);
    turn_wheel();
    if (maintenance_timer_ != 0 && now >= maintenance_due_) run_maintenance();
    if (has_memory_waiters_to_wake()) wake_memory_waiters();
    // Connections with due handlers do not prevent sleeping: their handlers do not run here.
    bool quiet = !poll_more_ && reap_.empty() && !has_memory_waiters_to_wake();
    // NOLINTNEXTLINE(modernize-loop-convert): the list may change meanwhile
    for (std::size_t i = 0; i < contexts_.size(); ++i)
      quiet = contexts_[i]->completions().arm() && quiet;
    quiet = quiet && reap_.empty() && dirty_.empty() && !wheel_.has_due();
    ae::TimePoint wake = deadline;
    if (const auto next = wheel_.next(now)) wake = std::min(wake, *next);
    if (maintenance_timer_ != 0) wake = std::min(wake, maintenance_due_);
    for (const LoopUser* connection : paced_)
      if (const auto at = connection->pace_at()) wake = std::min(wake, *at);
    wait_for_descriptors(quiet ? wake - now : ae::Duration::zero());
    for (LoopUser* connection : paced_)
      if (const auto at = connection->pace_at(); at && *at <= clock_now()) want_flush(*connection);
  }
}

void LoopState::wait_for_descriptors(ae::Duration limit) {
  std::vector<pollfd> fds{{cm_->fd(), POLLIN, 0}};
  for (const auto& context : contexts_) {
    fds.push_back({context->completions().fd(), POLLIN, 0});
    fds.push_back({context->device().event_fd(), POLLIN, 0});
  }
  // Rounded up, so that the deadline has passed on waking.
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit).count();
  const int ms = static_cast<int>(std::clamp<long long>(left, 0, 3600 * 1000));
  const int ready = ::poll(fds.data(), fds.size(), ms);
  if (ready < 0 && errno == EINTR) (void)Interruption::came();
  if (ready <= 0) return;
  for (std::size_t i = 0; i < contexts_.size() && 2 + 2 * i < fds.size(); ++i) {
    if (fds[1 + 2 * i].revents != 0) contexts_[i]->completions().on_event();
    if (fds[2 + 2 * i].revents != 0) contexts_[i]->on_async_event();
  }
}

}}}  // namespace conn::rdma
