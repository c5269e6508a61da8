// SPDX-License-Identifier: BSD-3-Clause
#include "conn/lists/fallback_connection.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "conn/fallback_type.h"
#include "conn/kit/interruption.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

using Clock = std::chrono::steady_clock;

std::string without_options(const Endpoint& endpoint) {
  Endpoint shown = endpoint;
  shown.options = {};  // they may contain a pass phrase
  return shown.to_string();
}

Failure mistake(const Error& error) {
  return {std::make_error_code(std::errc::invalid_argument), error.what()};
}

}  // namespace

FallbackConnection::FallbackConnection(const FallbackType& type, ae::EventLoop& loop)
    : Connection(type, loop) {}
FallbackConnection::~FallbackConnection() = default;

const FallbackType& FallbackConnection::fallback_type() const noexcept {
  return static_cast<const FallbackType&>(type());
}

// --- connecting ----------------------------------------------------------------------------------

void FallbackConnection::do_connect(const Endpoint& to) {
  to_ = without_options(to);
  try {
    const FallbackType::Times times = fallback_type().times(to);
    dial_ = std::make_unique<Dial>(*loop(), fallback_type().ways_to(to), times.delay, times.timeout,
                                   [this](ConnectionPtr winner) { dialled(std::move(winner)); });
  } catch (const Error& error) {
    fail_later(mistake(error));
  }
}

void FallbackConnection::fail_later(Failure failure) {
  fail(std::move(failure));
  timer_ = loop()->add_time_event(ae::Duration::zero(), [this] {
    timer_ = 0;
    (void)dispatch_connect();
    return ae::kNoMore;
  });
}

void FallbackConnection::dialled(ConnectionPtr winner) {
  const std::unique_ptr<Dial> over = std::move(dial_);
  try {
    skipped_ = over->not_taken();
    if (!winner) {
      fail({over->failure().code, "connect to " + to_ + ": " + over->failure().text,
            over->failure().retry_after});
    }
  } catch (const std::bad_alloc&) {
    fail(out_of_memory());
  }
  std::exception_ptr thrown;  // from the registry's handler; the connection's own runs nevertheless
  if (state() == State::kConnecting) {
    try {
      take(std::move(winner));
    } catch (...) {
      thrown = std::current_exception();
    }
    watch_or_fail();  // for handlers that were set earlier
  }
  (void)dispatch_connect();
  if (thrown) std::rethrow_exception(thrown);
}

void FallbackConnection::take(ConnectionPtr winner) {
  below_ = std::move(winner);
  below_->clear_handlers();
  move_to(State::kConnected);
  if (skipped_.empty()) return;
  std::optional<Fallback> fallback;
  try {
    fallback = Fallback{to_, std::string(below_->type().name()), skipped_};
  } catch (const std::bad_alloc&) {
    return;
  }
  fallback_type().took(*loop(), *fallback);
}

/// Tries the candidates one after the other, since the loop does not run meanwhile: each gets an
/// equal part of the time left.
void FallbackConnection::do_connect_blocking(const Endpoint& to, ae::TimePoint deadline) {
  to_ = without_options(to);
  std::vector<Way> ways;
  try {
    deadline = std::min(deadline, Clock::now() + fallback_type().times(to).timeout);
    ways = fallback_type().ways_to(to);
  } catch (const Error& error) {
    fail(mistake(error));
    return;
  }
  Failure why;
  for (std::size_t i = 0; i < ways.size() && !Interruption::ends(); ++i) {
    Way& way = ways[i];
    Skipped failed{way.scheme, SkipReason::kUnavailable, {}};
    if (way.type == nullptr) {
      failed.why = {std::make_error_code(std::errc::protocol_not_supported), way.unavailable};
    } else {
      const ae::Duration left = std::max(deadline - Clock::now(), ae::Duration::zero());
      const ae::Duration part = left / static_cast<ae::Duration::rep>(ways.size() - i);
      try {
        ConnectionPtr below = way.type->create(*loop());
        const ae::TimePoint until = Clock::now() + part;
        // Connected does not mean ready for data: see Dial::connected().
        const bool connected = below->connect_blocking(way.to, part);
        if (connected && below->sync_wait(ae::kWritable, until - Clock::now()) &&
            below->state() == State::kConnected) {
          take(std::move(below));
          return;
        }
        failed.why = {below->error_code(), below->last_error(), below->retry_after()};
        if (!failed.why)
          failed.why = {std::make_error_code(std::errc::timed_out),
                        "it was connected, and not ready for data in time"};
        failed.kind = kind_of(failed.why.code);
      } catch (const Error& error) {
        failed.kind = SkipReason::kNoDevice;
        failed.why = {std::make_error_code(std::errc::no_such_device), error.what()};
      }
    }
    why.code = failed.why.code;
    why.retry_after = std::max(why.retry_after, failed.why.retry_after);
    skipped_.push_back(std::move(failed));
  }
  why.text = "connect to " + to_ + ": " + describe(skipped_);
  fail(std::move(why));
}

// --- handlers ------------------------------------------------------------------------------------

/// Ends this connection as the lower one ended, once its unread data has been read.
void FallbackConnection::follow() {
  if (!below_ || state() != State::kConnected) return;
  if (below_->state() == State::kError) {
    fail({below_->error_code(), below_->last_error(), below_->retry_after()});
    if (Connection::keeps_unread(*below_)) keep_unread();
  } else if (below_->state() == State::kClosed) {
    move_to(State::kClosed);
  }
}

/// Requests from the lower connection the events that have a handler. After a failure this
/// connection runs its own handlers: the lower one may have left the loop for lack of memory.
void FallbackConnection::handlers_changed() {
  if (!below_ || closing()) return;
  const bool failed = state() == State::kError;
  if (failed) announce_error();
  ae::Mask wanted = ae::kNone;
  if (on_read_ && !failed) wanted = wanted | ae::kReadable;
  if (write_wanted() && !failed) wanted = wanted | ae::kWritable;
  const ae::Mask changed = (wanted | watched_) & ~(wanted & watched_);
  const bool again = std::exchange(rearm_, false) && (wanted & ae::kReadable) != 0;
  if ((changed & ae::kReadable) != 0 || again) {
    below_->set_read_handler(
        (wanted & ae::kReadable) != 0 ? Handler([this](Connection&) { readable(); }) : Handler());
  }
  if ((changed & ae::kWritable) != 0 ||
      ((wanted & ae::kWritable) != 0 && barrier_ != watched_barrier_)) {
    below_->set_write_handler(
        (wanted & ae::kWritable) != 0 ? Handler([this](Connection&) { writable(); }) : Handler(),
        barrier_);
  }
  watched_ = wanted;  // after the calls that may throw
  watched_barrier_ = barrier_;
  if (const bool closes = close_wanted(); closes != watches_close_) {
    below_->set_close_handler(closes ? Handler([this](Connection&) { below_gone(); }) : Handler(),
                              below_gone_ ? CloseOn::kFailure : CloseOn::kEnd);
    watches_close_ = closes;
  }
}

void FallbackConnection::announce_error() {
  const bool due = (on_read_ && error_unread()) || (on_write_ && error_unwritten());
  if (timer_ != 0 || !due) return;
  timer_ = loop()->add_time_event(ae::Duration::zero(), [this] {
    timer_ = 0;
    tell_error();
    return ae::kNoMore;
  });
}

void FallbackConnection::tell_error() {
  struct Then {  // also if a handler throws
    FallbackConnection& connection;
    ~Then() { connection.watch_or_fail(); }
  } then{*this};
  if (on_read_ && error_unread() && dispatch(on_read_) == Alive::kGone) return;
  if (on_write_ && error_unwritten()) (void)dispatch(on_write_);
}

void FallbackConnection::below_gone() {
  watches_close_ = false;
  below_gone_ = true;
  try {
    follow();
  } catch (const std::bad_alloc&) {
    fail(out_of_memory());
  }
  peer_gone();
  watch_or_fail();  // for a failure that may follow
}

void FallbackConnection::readable() {
  const bool due = state() != State::kError || error_unread();
  if (due && dispatch(on_read_) == Alive::kGone) return;
  watch_or_fail();
}

void FallbackConnection::writable() {
  const bool due = state() != State::kError || error_unwritten();
  if (due && dispatch_write() == Alive::kGone) return;
  watch_or_fail();
}

// --- data ----------------------------------------------------------------------------------------

/// If the operation found the end of the lower connection, this connection ends as well.
template <class Result>
Result FallbackConnection::followed(Result result) {
  if (below_->state() != State::kConnected) [[unlikely]] {
    const int err = errno;
    follow();
    errno = err;
  }
  return result;
}

ssize_t FallbackConnection::do_read(void* buffer, std::size_t size) {
  return followed(below_->read(buffer, size));
}

ssize_t FallbackConnection::do_readv(const iovec* vectors, int count) {
  return followed(below_->readv(vectors, count));
}

ssize_t FallbackConnection::do_writev(const iovec* vectors, int count) {
  return followed(below_->writev(vectors, count));
}

bool FallbackConnection::peeks_in_place() const noexcept {
  return below_ && Connection::peeks_in_place(*below_);
}

ssize_t FallbackConnection::do_peek(std::size_t together, View& view) {
  view = below_->peek(together);
  if (view.size != 0) return 1;
  return followed(errno == 0 ? ssize_t{0} : ssize_t{-1});
}

std::size_t FallbackConnection::do_consume(std::size_t size) noexcept {
  const std::uint64_t before = below_->bytes_read();
  below_->consume(size);
  return static_cast<std::size_t>(below_->bytes_read() - before);
}

bool FallbackConnection::reserves_in_place() const noexcept {
  return below_ && Connection::reserves_in_place(*below_);
}

std::span<std::byte> FallbackConnection::do_reserve(std::size_t size) {
  return followed(below_->reserve(size));
}

void FallbackConnection::do_commit(std::size_t size) noexcept { below_->commit(size); }

int FallbackConnection::do_shutdown() { return followed(below_->shutdown()); }

int FallbackConnection::do_shutdown_both() {
  if (below_->shutdown_both() != 0) return -1;
  follow();
  if (state() == State::kConnected) move_to(State::kClosed);
  handlers_changed();
  return 0;
}

bool FallbackConnection::do_flush(ae::TimePoint until) noexcept {
  if (!below_) return true;
  below_->flush();
  return Connection::flush(*below_, until);
}

bool FallbackConnection::wait_for(ae::Mask direction, ae::TimePoint deadline) {
  return below_->sync_wait(direction, deadline - Clock::now());
}

// --- the end -------------------------------------------------------------------------------------

ae::Duration FallbackConnection::linger() const noexcept {
  return below_ ? Connection::linger(*below_) : Connection::linger();
}

ae::Duration FallbackConnection::end_linger() const noexcept {
  return below_ ? Connection::end_linger(*below_) : Connection::end_linger();
}

const Failure& FallbackConnection::why_ended() const noexcept {
  const bool stands = below_ && state() == State::kConnected;
  return stands ? below_->why_ended() : Connection::why_ended();
}

void FallbackConnection::do_expect_no_more() noexcept {
  if (below_) Connection::expect_no_more(*below_);
}

void FallbackConnection::do_close() noexcept {
  if (timer_ != 0) loop()->remove_time_event(timer_);
  timer_ = 0;
  dial_.reset();
  if (below_ && aborts())
    below_.release()->abort();
  else
    below_.reset();  // delivers what was written
  release();
}

void FallbackConnection::do_abandon() noexcept {
  if (timer_ != 0) loop()->remove_time_event(timer_);
  timer_ = 0;
  if (dial_) dial_->abandon();
  if (!below_) return;
  below_->clear_handlers();  // it may exist a little longer
}

bool FallbackConnection::do_rebind(ae::EventLoop* to) {
  if (on_connect_) {  // it has failed, and its connect handler is due
    errno = EBUSY;
    return false;
  }
  // This connection must arrive before the lower one, whose handlers need it there.
  Move move(*this, to);
  if (below_ && !Connection::rebind(*below_, to)) return false;
  if (timer_ != 0) loop()->remove_time_event(timer_);
  timer_ = 0;
  move.leave();
  return true;
}

bool FallbackConnection::do_join(ae::EventLoop& loop) { return !below_ || below_->join(loop); }

// --- facts ---------------------------------------------------------------------------------------

std::optional<bool> FallbackConnection::is_local() const {
  return below_ ? below_->is_local() : std::nullopt;
}

std::vector<std::pair<std::string, std::string>> FallbackConnection::info() const {
  std::vector<std::pair<std::string, std::string>> facts;
  if (below_) facts.emplace_back("carrier", below_->type().name());
  for (const Skipped& each : skipped_) facts.emplace_back("not-" + each.scheme, each.why.text);
  if (below_) {
    for (auto& fact : below_->info()) facts.push_back(std::move(fact));
  }
  return facts;
}

std::string FallbackConnection::do_path() const {
  if (!below_) return describe(skipped_);
  std::string line = path(*below_);
  return skipped_.empty() ? line : line.append("; ").append(describe(skipped_));
}

std::string FallbackConnection::peer_certificate() const {
  return below_ ? below_->peer_certificate() : std::string();
}

std::string FallbackConnection::peer_user() const {
  return below_ ? below_->peer_user() : std::string();
}

}}  // namespace conn
