// SPDX-License-Identifier: BSD-3-Clause
#include "conn/redial/attempt.h"

#include <chrono>
#include <new>
#include <utility>

#include "conn/redial/route.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

using namespace std::chrono_literals;

// Interval at which a waiting attempt checks whether the DialLimit has permitted it to connect. The
// check is needed because the notification may fail for lack of memory.
constexpr ae::Duration kLookAgain = 50ms;

std::string without_options(const Endpoint& endpoint) {
  Endpoint shown = endpoint;
  shown.options = {};  // options are not shown, because they may contain a pass phrase
  return shown.to_string();
}

}  // namespace

Failure failure_of(const Connection& connection, const char* otherwise) noexcept {
  try {
    if (connection.error_code())
      return {connection.error_code(), connection.last_error(), connection.retry_after()};
    return {std::make_error_code(std::errc::connection_reset), otherwise};
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

Redial::Attempt::Attempt(Redial& owner, Which which, Done done)
    : owner_(owner),
      which_(which),
      done_(std::move(done)),
      timer_(owner.loop_, [this] { owner_.enter([this] { on_timer(); }); }) {}

void Redial::Attempt::start() {
  DialLimit* const limit = owner_.settings_.limit;
  place_ = (limit != nullptr ? *limit : DialLimit::of_process()).enter(owner_.loop_, [this] {
    owner_.enter([this] { dial(); });
  });
  if (place_->holds()) {
    dial();
  } else {
    timer_.set(kLookAgain);
    (void)show(Phase::kInLine);
  }
}

void Redial::Attempt::on_timer() {
  if (end_) return finish(std::move(end_));
  if (!place_->holds()) timer_.set(kLookAgain);
}

bool Redial::Attempt::show(Phase phase) {
  // While an attempt over the preferred scheme is in progress, the Redial's phase stays kUp,
  // because the present connection is in use.
  if (which_ == Which::kPreferred) return true;
  const auto alive = alive_;
  return owner_.set_phase(phase) && *alive;
}

void Redial::Attempt::dial() {
  // If the DialLimit permits the attempt between the calls of enter() and holds() in start(), this
  // function is called twice: by start(), and by the function that start() passed to enter().
  if (std::exchange(begun_, true)) return;
  timer_.clear();
  if (!show(Phase::kDialling)) return;
  try {
    Route route = route_to(owner_.registry_, owner_.to_, owner_.settings_.attempt);
    list_ = route.list;
    if (which_ == Which::kPreferred) route.candidates.resize(1);
    dial_ = std::make_unique<Dial>(owner_.loop_, std::move(route.candidates), route.times.delay,
                                   route.times.timeout, [this](ConnectionPtr connection) {
                                     owner_.enter([&] { dialled(std::move(connection)); });
                                   });
  } catch (const Error& error) {
    end_ = Failure(error);
    timer_.set(0ms);
  }
}

void Redial::Attempt::dialled(ConnectionPtr connection) {
  const std::unique_ptr<Dial> over = std::move(dial_);
  if (which_ == Which::kAny) skipped_ = over->not_taken();
  if (!connection) return finish(over->failure());
  connection_ = std::move(connection);
  if (list_ != nullptr && !skipped_.empty()) {
    const Fallback fallback{without_options(owner_.to_), std::string(connection_->type().name()),
                            skipped_};
    // Creates the counters before report() needs them, so that an exception of report() can only
    // come from the program's handler.
    (void)list_->counters(owner_.loop_);
    const auto alive = alive_;
    if (!owner_.tell([&](const Handlers&) { list_->report(owner_.loop_, fallback); }) || !*alive)
      return;
  }
  if (owner_.handlers_->prove) {
    prove();
  } else {
    finish({});
  }
}

void Redial::Attempt::prove() {
  connection_->set_close_handler([this](Connection& connection) {
    owner_.enter(
        [&] { finish(failure_of(connection, "the peer closed before it answered the probe")); });
  });
  end_ = {std::make_error_code(std::errc::timed_out), "the probe was not answered in time"};
  timer_.set(owner_.settings_.proof);
  if (!show(Phase::kProving)) return;
  const Proved proved = [this, alive = alive_](bool good) {
    if (!*alive || !connection_) return;
    owner_.enter([&] {
      finish(good ? Failure{}
                  : Failure{std::make_error_code(std::errc::protocol_error),
                            "the probe found the connection no good"});
    });
  };
  Connection& connection = *connection_;
  (void)owner_.tell([&](const Handlers& handlers) { handlers.prove(connection, proved); });
}

/// Ends the attempt and reports its result: success if `why` is empty. Destroys this object.
void Redial::Attempt::finish(Failure why) {
  timer_.clear();
  place_.reset();
  ConnectionPtr connection = std::move(connection_);
  if (why) {
    connection.reset();
  } else {
    connection->clear_handlers();
  }
  const Done done = std::move(done_);
  done(std::move(connection), std::move(why), std::move(skipped_));
}

}}  // namespace conn
