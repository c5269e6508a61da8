// SPDX-License-Identifier: BSD-3-Clause
#include "conn/redial.h"

#include <chrono>
#include <new>
#include <random>
#include <utility>

#include "conn/core/connection_core.h"
#include "conn/redial/attempt.h"
#include "conn/redial/one_shot_timer.h"
#include "conn/redial/route.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

std::uint64_t seed_or_any(std::uint64_t seed) {
  if (seed != 0) return seed;
  std::random_device random;
  return (std::uint64_t{random()} << 32) | random();
}

/// Returns a copy of `failure`; if there is no memory for its text, a copy with the code and
/// retry_after only.
Failure copy_of(const Failure& failure) noexcept {
  try {
    return failure;
  } catch (const std::bad_alloc&) {
    return {failure.code, "out of memory", failure.retry_after};
  }
}

}  // namespace

std::string_view to_string(Redial::Phase phase) noexcept {
  switch (phase) {
    case Redial::Phase::kWaiting:
      return "waiting";
    case Redial::Phase::kInLine:
      return "in line";
    case Redial::Phase::kDialling:
      return "dialling";
    case Redial::Phase::kProving:
      return "proving";
    case Redial::Phase::kUp:
      return "up";
    case Redial::Phase::kStopped:
      return "stopped";
    case Redial::Phase::kTaken:
      return "taken";
  }
  return "?";
}

void Redial::recover() noexcept {
  if (phase_ == Phase::kStopped) return;
  if (connection_ || phase_ == Phase::kTaken) {
    preferred_.reset();
    if (better_) {
      soon_->set(OneShotTimer::kRetry);
    } else {
      watch_preferred();
    }
  } else {
    attempt_ended({}, out_of_memory(), {});
  }
}

// --- connecting ----------------------------------------------------------------------------------

Redial::Redial(const Registry& registry, ae::EventLoop& loop, Endpoint to, Handlers handlers,
               Settings settings)
    : registry_(registry),
      loop_(loop),
      to_(std::move(to)),
      handlers_(std::make_shared<const Handlers>(std::move(handlers))),
      settings_(settings),
      backoff_(settings.first_pause, settings.most_pause, seed_or_any(settings.seed)),
      prefer_pause_(settings.prefer_again, settings.prefer_again, seed_or_any(settings.seed)),
      pause_end_(std::make_unique<OneShotTimer>(loop, [this] { enter([this] { begin(); }); })),
      prefer_again_(
          std::make_unique<OneShotTimer>(loop, [this] { enter([this] { try_preferred(); }); })),
      soon_(std::make_unique<OneShotTimer>(loop, [this] { enter([this] { on_soon(); }); })) {
  (void)route_to(registry_, to_, settings_.attempt);
  pause_end_->set(0ms);
}

Redial::~Redial() {
  life_->alive = false;
  clear();
}

void Redial::clear() noexcept {
  attempt_.reset();
  preferred_.reset();
  better_.reset();
  connection_.reset();
  pause_end_->clear();
  prefer_again_->clear();
  soon_->clear();
}

void Redial::stop() {
  phase_ = Phase::kStopped;
  clear();
}

/// Ends the connection, or the attempt to connect, if the program has called drop() for it. drop()
/// may have been called for an attempt that has succeeded since: then this function ends the
/// connection. Without drop(), moves to the preferred scheme. A handler may destroy this object.
void Redial::on_soon() {
  if (!dropped_) return move_if_quiet();
  Failure why = std::exchange(dropped_, {});
  if (connection_) {
    lose(std::move(why));
  } else if (attempt_) {
    attempt_ended({}, std::move(why), {});
  }
}

bool Redial::set_phase(Phase phase) {
  phase_ = phase;
  return tell([](const Handlers& handlers) {
    if (handlers.changed) handlers.changed();
  });
}

void Redial::begin() {
  ++counters_.attempts;
  attempt_ = std::make_unique<Attempt>(
      *this, Attempt::Which::kAny,
      [this](ConnectionPtr connection, Failure failure, std::vector<Skipped> not_taken) {
        attempt_ended(std::move(connection), std::move(failure), std::move(not_taken));
      });
  attempt_->start();
}

void Redial::attempt_ended(ConnectionPtr connection, Failure failure,
                           std::vector<Skipped> not_taken) {
  attempt_.reset();
  if (connection) {
    stand(std::move(connection), std::move(not_taken));
    return;
  }
  ++counters_.failures;
  last_ = std::move(failure);
  pause(last_.retry_after);
}

void Redial::pause(ae::Duration asked) {
  pause_end_->set(backoff_.next(asked));
  (void)set_phase(Phase::kWaiting);
}

void Redial::stand(ConnectionPtr connection, std::vector<Skipped> not_taken) {
  watch(*connection);
  connection_ = std::move(connection);
  skipped_ = std::move(not_taken);
  since_ = Clock::now();
  written_before_ = connection_->bytes_written();
  confirmed_ = 0;
  ++counters_.connected;
  phase_ = Phase::kUp;
  watch_preferred();
  const auto life = life_;
  (void)tell([this](const Handlers& each) {
    if (each.up) each.up(*connection_);
  });
  if (life->alive) {
    (void)tell([](const Handlers& each) {
      if (each.changed) each.changed();
    });
  }
}

void Redial::watch(Connection& connection) {
  connection.set_close_handler([this](Connection& ended) {
    enter([&] { lose(failure_of(ended, "the peer closed the connection")); });
  });
}

// --- take() and give_back() ----------------------------------------------------------------------

ConnectionPtr Redial::take() noexcept {
  if (phase_ != Phase::kUp || dropped_) return nullptr;
  phase_ = Phase::kTaken;
  connection_->clear_handlers();
  return std::move(connection_);
}

void Redial::give_back(ConnectionPtr connection, Failure why) noexcept {
  if (phase_ != Phase::kTaken) return;
  try {
    if (connection == nullptr) {
      if (!why)
        why = {std::make_error_code(std::errc::operation_canceled),
               "the connection was not given back"};
    } else if (connection->state() != State::kConnected || ConnectionCore::of(*connection).gone()) {
      why = failure_of(*connection, "the peer closed the connection");
    } else {
      connection->clear_handlers();
      watch(*connection);
      connection_ = std::move(connection);
      written_before_ = connection_->bytes_written();
      confirmed_ = 0;
      phase_ = Phase::kUp;
      if (better_) soon_->set(0ms);
      return;
    }
  } catch (const std::bad_alloc&) {
    why = out_of_memory();
  }
  preferred_.reset();
  better_.reset();
  prefer_again_->clear();
  soon_->clear();
  skipped_.clear();
  last_ = std::move(why);
  phase_ = Phase::kWaiting;
  count_loss();
  pause_end_->set(backoff_.next(last_.retry_after));
}

/// Counts the loss of an established connection. If the connection has lasted for Settings::stable,
/// the pauses start again with the shortest one.
void Redial::count_loss() noexcept {
  ++counters_.lost;
  if (Clock::now() - since_ >= settings_.stable) backoff_.reset();
}

// --- loss of the connection ----------------------------------------------------------------------

void Redial::lose(Failure why) {
  if (!connection_) return;
  // If the connection ends before the program's drop() was carried out, the reason passed to drop()
  // is the one that is reported.
  if (dropped_) why = std::exchange(dropped_, {});
  Loss loss;
  loss.why = copy_of(why);
  loss.unconfirmed = unconfirmed();
  const ConnectionPtr lost = std::move(connection_);
  prefer_again_->clear();
  soon_->clear();
  preferred_.reset();
  skipped_.clear();
  last_ = std::move(why);
  count_loss();
  phase_ = Phase::kWaiting;
  if (!tell_down(*lost, loss)) return;
  if (better_) {
    better_->set_close_handler(nullptr);
    stand(std::move(better_), {});
  } else {
    pause(last_.retry_after);
  }
}

bool Redial::tell_down(Connection& connection, const Loss& loss) {
  return tell([&](const Handlers& handlers) {
    if (handlers.down) handlers.down(connection, loss);
  });
}

void Redial::drop(const std::string& why) {
  if (!connection_ && !attempt_) return;
  dropped_ = {std::make_error_code(std::errc::protocol_error), why};
  soon_->set(0ms);
}

std::uint64_t Redial::unconfirmed() const noexcept {
  if (!connection_) return 0;
  const std::uint64_t written = connection_->bytes_written() - written_before_;
  return written > confirmed_ ? written - confirmed_ : 0;
}

void Redial::confirm(std::uint64_t bytes) {
  confirmed_ += bytes;
  if (better_ && !soon_->is_set() && unconfirmed() == 0) soon_->set(0ms);
}

// --- moving to a connection over the preferred scheme --------------------------------------------

void Redial::watch_preferred() {
  if (skipped_.empty() || settings_.prefer_again <= 0ms) return;
  prefer_again_->set(prefer_pause_.next());
}

void Redial::try_preferred() {
  preferred_ = std::make_unique<Attempt>(
      *this, Attempt::Which::kPreferred,
      [this](ConnectionPtr connection, Failure failure, const std::vector<Skipped>&) {
        preferred_.reset();
        if (connection) {
          found_preferred(std::move(connection));
        } else {
          skipped_.front().kind = kind_of(failure.code);
          skipped_.front().why = std::move(failure);
          watch_preferred();
        }
      });
  preferred_->start();
}

void Redial::found_preferred(ConnectionPtr connection) {
  connection->set_close_handler([this](Connection&) {
    better_.reset();
    watch_preferred();
  });
  better_ = std::move(connection);
  move_if_quiet();
}

/// Moves to the connection over the preferred scheme, if there is one and all data written to the
/// present connection is confirmed. With unconfirmed data the connection is kept, because the
/// program could not know whether the peer has received that data.
void Redial::move_if_quiet() {
  if (!better_ || !connection_ || unconfirmed() != 0 || dropped_) return;
  Loss loss;
  loss.why = {std::make_error_code(std::errc::operation_canceled),
              std::string(better_->type().name()) + " works again"};
  loss.moved = true;
  const ConnectionPtr old = std::move(connection_);
  old->set_close_handler(nullptr);
  soon_->clear();
  skipped_.clear();
  phase_ = Phase::kWaiting;  // there is no connection while Handlers::down runs
  if (!tell_down(*old, loss)) return;
  // The new connection has ended while the handler ran a nested iteration of the loop.
  if (!better_) {
    last_ = {std::make_error_code(std::errc::connection_reset),
             "the connection over the preferred scheme ended while it was moved to"};
    count_loss();
    return pause({});
  }
  ++counters_.moved;
  better_->set_close_handler(nullptr);
  stand(std::move(better_), {});
}

void Redial::try_now() {
  if (pause_end_->is_set()) {
    pause_end_->set(0ms);
  } else if (connection_ && prefer_again_->is_set()) {
    prefer_again_->set(0ms);
  }
}

std::string Redial::describe() const {
  std::string text(to_string(phase_));
  if (phase_ == Phase::kUp && !skipped_.empty()) {
    text.append(" by ").append(connection_->type().name()).append("; ");
    return text + conn::describe(skipped_);
  }
  if (phase_ == Phase::kWaiting && pause_end_->is_set()) {
    const auto ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(pause_end_->left()).count();
    text.append(" ").append(std::to_string(ms)).append(" ms");
  }
  if (phase_ != Phase::kUp && phase_ != Phase::kTaken && last_)
    text.append(" after: ").append(last_.text);
  return text;
}

}}  // namespace conn
