// SPDX-License-Identifier: BSD-3-Clause
#include "conn/core/idle_watch.h"

#include <cerrno>
#include <new>
#include <utility>

#include "conn/core/connection_core.h"
#include "conn/options.h"
#include "conn/url/coded_failure.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

/// Number of steps in one idle-timeout. The connection fails when no byte was read or written in
/// this many steps in a row: after idle-timeout without a byte, or at the latest one step later.
constexpr unsigned kSteps = 4;

Failure silence(const Carrier& carrier, ae::Duration time) {
  return coded_failure(std::make_error_code(std::errc::timed_out), [&] {
    return "connection to " + carrier.facts().peer_address() +
           ": nothing was read or written for " + time_words(time);
  });
}

}  // namespace

void follow_idle(ConnectionCore& connection) noexcept { IdleWatch::follow(connection); }

void DropIdleWatch::operator()(IdleWatch* watch) const noexcept { delete watch; }

IdleWatch::IdleWatch(ConnectionCore& connection, ae::Duration time)
    : connection_(connection),
      loop_(*connection.loop_),
      time_(time),
      step_((time + ae::Duration(kSteps - 1)) / kSteps),
      seen_(bytes()),
      timer_(loop_.add_time_event(step_, [this] { return look(); })) {}

IdleWatch::~IdleWatch() {
  if (timer_ != 0) loop_.remove_time_event(timer_);
}

std::uint64_t IdleWatch::bytes() const noexcept {
  return connection_.bytes_read_ + connection_.bytes_written_;
}

/// Called at the end of each step, kSteps times per idle-timeout. Fails the connection after kSteps
/// steps in a row without a byte. Returns the time until the end of the next step.
ae::Duration IdleWatch::look() {
  const std::uint64_t now = bytes();
  if (now != std::exchange(seen_, now))
    quiet_ = 0;
  else if (++quiet_ == kSteps) {
    timer_ = 0;
    fail();  // may destroy this object
    return ae::kNoMore;
  }
  return step_;
}

void IdleWatch::fail() noexcept {
  ConnectionCore& c = connection_;
  if (c.given_up() || c.inherited()) return;
  c.fail(silence(c.carrier(), time_));
  c.keep_unread();
  c.watch_or_fail();
}

void IdleWatch::follow(ConnectionCore& c) noexcept {
  const bool watched =
      c.state_ == State::kConnected && c.events_wanted() && !c.given_up() && c.carrier_;
  const ae::Duration time = watched ? c.carrier_->idle_timeout() : ae::Duration::zero();
  if (time <= ae::Duration::zero()) {
    if (c.rare_) c.rare_->idle.reset();
    return;
  }
  if (c.rare_ && c.rare_->idle && c.rare_->idle->time_ == time) return;
  try {
    c.rare().idle.reset();
    c.rare().idle.reset(new IdleWatch(c, time));
  } catch (const std::bad_alloc&) {
    // There is no memory to watch the connection. It fails, because without the watch it might stay
    // open forever, contrary to its option.
    c.fail(out_of_memory());
  }
}

}}  // namespace conn
