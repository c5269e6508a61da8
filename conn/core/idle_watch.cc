// SPDX-License-Identifier: BSD-3-Clause
#include "conn/core/idle_watch.h"

#include <cerrno>
#include <new>
#include <utility>

#include "conn/core/connection_core.h"
#include "conn/options.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

/// Number of steps in one idle-timeout. A silence is found when this many steps in a row have seen
/// no byte: after the time itself, and at the latest one step later.
constexpr unsigned kSteps = 4;

Failure silence(const Carrier& carrier, ae::Duration time) {
  Failure why = out_of_memory();
  why.code = std::make_error_code(std::errc::timed_out);
  try {
    why.text = "connection to " + carrier.peer_address() + ": nothing was read or written for " +
               time_words(time);
  } catch (const std::bad_alloc&) {
    // The failure keeps the text about memory; its code is right.
  }
  return why;
}

}  // namespace

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

/// Counts a step without bytes; after the last one, fails the connection. Returns the time until
/// the next step.
ae::Duration IdleWatch::look() {
  const std::uint64_t now = bytes();
  if (now != std::exchange(seen_, now))
    quiet_ = 0;
  else if (++quiet_ == kSteps) {
    timer_ = 0;
    connection_.fail_idle(time_);  // destroys this object
    return ae::kNoMore;
  }
  return step_;
}

/// Begins or ends to watch for silence, after the state, the carrier or the loop has changed.
void ConnectionCore::watch_idle() noexcept {
  const bool watched = state_ == State::kConnected && events_wanted() && !given_up() && carrier_;
  const ae::Duration time = watched ? carrier_->idle_timeout() : ae::Duration::zero();
  if (time <= ae::Duration::zero()) {
    if (rare_) rare_->idle.reset();
    return;
  }
  if (rare_ && rare_->idle && rare_->idle->time() == time) return;
  try {
    rare().idle.reset();
    rare().idle.reset(new IdleWatch(*this, time));
  } catch (const std::bad_alloc&) {
    // Without a watch the connection might stay for ever, against the option.
    fail(out_of_memory());
  }
}

void ConnectionCore::fail_idle(ae::Duration time) noexcept {
  if (given_up() || inherited()) return;
  fail(silence(*carrier_, time));
  keep_unread();
  watch_or_fail();
}

}}  // namespace conn
