// SPDX-License-Identifier: BSD-3-Clause
#include "conn/lists/dial.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "conn/lists/time_left.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

using Clock = std::chrono::steady_clock;

constexpr ae::Duration kNoTimeSet = std::chrono::hours(24 * 365);

std::string in_ms(ae::Duration time) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(time).count()) +
         " ms";
}

/// Returns the text that `make` makes, or "out of memory".
template <class Make>
std::string or_out_of_memory(const Make& make) noexcept {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return "out of memory";
  }
}

ae::TimePoint after(ae::Duration timeout) {
  const ae::TimePoint now = Clock::now();
  return timeout > ae::TimePoint::max() - now ? ae::TimePoint::max() : now + timeout;
}

}  // namespace

std::error_code code_of(const std::vector<Skipped>& all) noexcept {
  for (auto last = all.rbegin(); last != all.rend(); ++last)
    if (last->kind != SkipReason::kUnavailable) return last->why.code;
  return all.empty() ? std::error_code() : all.back().why.code;
}

Dial::Dial(ae::EventLoop& loop, std::vector<Candidate> candidates, ae::Duration delay,
           ae::Duration timeout, Done done)
    : loop_(loop), race_(candidates.size(), delay, after(timeout)), done_(std::move(done)) {
  attempts_.reserve(candidates.size());
  skipped_.reserve(candidates.size());
  for (Candidate& candidate : candidates) {
    Attempt attempt;
    attempt.candidate = std::move(candidate);
    attempts_.push_back(std::move(attempt));
  }
  // The timer is created once, here, because reporting the result later must not need memory.
  timer_ = loop_.add_time_event(kNoTimeSet, [this] {
    if (over_) {
      finish();
    } else {
      go_on(false);
    }
    return ae::kNoMore;  // only arm() sets the timer again, if candidates are left
  });
  go_on(true);
}

Dial::~Dial() {
  if (timer_ != 0) loop_.remove_time_event(timer_);
}

void Dial::abandon() noexcept {
  if (timer_ != 0) loop_.remove_time_event(timer_);
  timer_ = 0;
  done_ = nullptr;
  over_ = true;
}

/// Starts connecting to the candidates that are due, and ends the Dial if one is ready or all have
/// failed. If the constructor calls this function (`inside` is true), the timer delivers the result
/// later. Otherwise the function delivers the result itself, and this object may be destroyed
/// during the call.
void Dial::go_on(bool inside) {
  if (over_) return;
  for (;;) {
    const Race::Move move = race_.next(Clock::now());
    switch (move.step) {
      case Race::Step::kStart:
        start(move.candidate);
        continue;
      case Race::Step::kWait:
        arm(race_.wake());
        return;
      case Race::Step::kWon:
        winner_ = std::move(attempts_[move.candidate].connection);
        attempts_.resize(move.candidate);
        break;
      case Race::Step::kLost:
        break;
    }
    break;
  }
  over_ = true;
  if (inside) {
    arm(Clock::now());
  } else {
    finish();
  }
}

void Dial::start(std::size_t index) noexcept {
  Attempt& attempt = attempts_[index];
  attempt.began = Clock::now();
  try {
    if (attempt.candidate.type == nullptr) {
      fail(
          index, SkipReason::kUnavailable,
          {std::make_error_code(std::errc::protocol_not_supported), attempt.candidate.unavailable});
      return;
    }
    try {
      const Endpoint to = with_time(attempt.candidate, race_.deadline() - attempt.began);
      attempt.connection = attempt.candidate.type->create(loop_);
      attempt.connection->connect(to, [this, index](Connection&) { connected(index); });
    } catch (const Error& error) {
      Failure why = Failure(error);
      const SkipReason kind = kind_of(why.code);
      fail(index, kind, std::move(why));
    }
  } catch (const std::bad_alloc&) {
    fail(index, SkipReason::kOther, out_of_memory());
  }
}

void Dial::connected(std::size_t index) {
  Connection& connection = *attempts_[index].connection;
  try {
    if (connection.state() == State::kConnected) {
      // A connected connection is not always ready for data: over rdma the peer has perhaps not
      // offered any memory to write into yet. So the Dial waits until the connection is writable.
      connection.set_write_handler([this, index](Connection&) { writable(index); });
      return;
    }
    fail_by(index, connection);
  } catch (const std::bad_alloc&) {
    fail(index, SkipReason::kOther, out_of_memory());
  }
  go_on(false);
}

void Dial::writable(std::size_t index) {
  Connection& connection = *attempts_[index].connection;
  if (connection.state() == State::kConnected) {
    connection.set_write_handler(nullptr);
    race_.ready(index);
  } else {
    fail_by(index, connection);
  }
  go_on(false);
}

void Dial::fail_by(std::size_t index, const Connection& connection) noexcept {
  const SkipReason kind = kind_of(connection.error_code());
  try {
    fail(index, kind, {connection.error_code(), connection.last_error(), connection.retry_after()});
  } catch (const std::bad_alloc&) {
    fail(index, kind, {connection.error_code(), "out of memory", connection.retry_after()});
  }
}

void Dial::fail(std::size_t index, SkipReason kind, Failure why) noexcept {
  Attempt& attempt = attempts_[index];
  attempt.kind = kind;
  attempt.why = std::move(why);
  attempt.connection.reset();
  race_.failed(index);
}

/// Closes the connections of all candidates but the winner, and passes the result to the function
/// that the constructor got.
void Dial::finish() {
  loop_.remove_time_event(std::exchange(timer_, 0));
  say_why();
  attempts_.clear();
  if (winner_) failure_ = {};
  const Done done = std::move(done_);
  done(std::move(winner_));
}

/// Records why candidates were not used, for not_taken() and failure(). If memory runs out, only
/// the texts are lost, because the caller must still learn which schemes were skipped, for example
/// in order to try the preferred one again.
void Dial::say_why() noexcept {
  const ae::TimePoint now = Clock::now();
  for (std::size_t i = 0; i < attempts_.size(); ++i) {
    Attempt& attempt = attempts_[i];
    if (!race_.has_failed(i)) {
      attempt.kind = winner_ ? SkipReason::kSlower : SkipReason::kTimedOut;
      attempt.why.code = std::make_error_code(std::errc::timed_out);
      attempt.why.text = or_out_of_memory([&] { return why_not_ready(i, now); });
    }
    skipped_.push_back({std::move(attempt.candidate.scheme), attempt.kind, std::move(attempt.why)});
  }
  if (winner_) return;
  failure_.code = code_of(skipped_);
  failure_.text = or_out_of_memory(
      [&] { return skipped_.size() == 1 ? skipped_.front().why.text : describe(skipped_); });
  for (const Skipped& each : skipped_)
    failure_.retry_after = std::max(failure_.retry_after, each.why.retry_after);
}

std::string Dial::why_not_ready(std::size_t candidate, ae::TimePoint now) const {
  if (!race_.started(candidate)) return "the time was over before its turn";
  std::string text = "it was not ready after " + in_ms(now - attempts_[candidate].began);
  return winner_ ? text + ", and " + std::string(winner_->type().name()) + " was" : text;
}

void Dial::arm(ae::TimePoint when) noexcept {
  (void)loop_.again(timer_, std::min(when, Clock::now() + kNoTimeSet));
}

}}  // namespace conn
