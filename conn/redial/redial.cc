// SPDX-License-Identifier: BSD-3-Clause
#include "conn/redial.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <random>
#include <utility>

#include "conn/core/connection_core.h"
#include "conn/fallback_type.h"
#include "conn/lists/dial.h"

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

Failure failure_of(const Connection& connection, const char* otherwise) noexcept {
  try {
    if (connection.error_code())
      return {connection.error_code(), connection.last_error(), connection.retry_after()};
    return {std::make_error_code(std::errc::connection_reset), otherwise};
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

std::string without_options(const Endpoint& endpoint) {
  Endpoint shown = endpoint;
  shown.options = {};  // options are not shown, because they may contain a pass phrase
  return shown.to_string();
}

/// The candidates (schemes and endpoints to try) of a connection attempt, and its time-outs.
struct Route {
  const FallbackType* list = nullptr;
  std::vector<Candidate> candidates;
  FallbackType::Times times{};
};

/// Determines the candidates and time-outs of an attempt to connect to `to`; `attempt` is the
/// time-out if the endpoint sets none. Throws Error.
Route route_to(const Registry& registry, const Endpoint& to, ae::Duration attempt) {
  Route route;
  ConnectionType& type = registry.require(to.scheme);
  type.check(to);
  route.list = registry.list(to.scheme);
  if (route.list != nullptr) {
    route.candidates = route.list->candidates_for(to);
    route.times = route.list->times(to);
  } else {
    Candidate candidate;
    candidate.scheme = to.scheme;
    candidate.type = &type;
    candidate.to = to;
    route.candidates.push_back(std::move(candidate));
    // Any value is allowed here, because check() has verified the range.
    route.times.timeout = to.options.duration("connect-timeout", attempt, 0ms, ae::Duration::max());
  }
  if (!to.options.has("connect-timeout")) route.times.timeout = attempt;
  for (Candidate& candidate : route.candidates) {
    // Detects a dead TCP path within seconds. Without these options TCP retransmits lost data at
    // ever longer intervals, up to two minutes, and continues to do so after the path has
    // recovered.
    if (candidate.type == nullptr || candidate.type->find_option("user-timeout") == nullptr)
      continue;
    for (const auto& [key, value] : {std::pair{"keepalive", "1s"}, {"user-timeout", "3s"}})
      if (!to.options.has(key)) candidate.to.options.set(key, value);
  }
  return route;
}

constexpr ae::Duration kNever = 24h * 365;
// How long to wait before trying again after memory ran out, and between checks of whether the
// DialLimit has granted a place, in case the notification failed for lack of memory.
constexpr ae::Duration kLookAgain = 50ms;

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

// --- steps ---------------------------------------------------------------------------------------

/// Runs `step`. Every call that the event loop makes into this object goes through here. An
/// exception from the program's handlers is rethrown at the end; if memory runs out in the
/// library's own code, recover() restarts that work. This object may have been destroyed when the
/// call returns.
template <class Step>
void Redial::enter(Step step) {
  const std::shared_ptr<Life> life = life_;
  ++life->steps;
  try {
    step();
  } catch (const std::bad_alloc&) {
    if (life->alive) recover();
  }
  if (--life->steps == 0 && life->thrown)
    std::rethrow_exception(std::exchange(life->thrown, nullptr));
}

/// Calls a handler of the program and keeps its exception for enter(). Returns false if the handler
/// destroyed or stopped this object.
template <class Call>
bool Redial::tell(Call call) {
  const std::shared_ptr<Life> life = life_;
  const std::shared_ptr<const Handlers> handlers = handlers_;
  try {
    call(*handlers);
  } catch (...) {
    if (!life->thrown) life->thrown = std::current_exception();
  }
  return life->alive && phase_ != Phase::kStopped;
}

void Redial::recover() noexcept {
  if (phase_ == Phase::kStopped) return;
  if (connection_ || phase_ == Phase::kTaken) {
    preferred_.reset();
    if (better_) {
      set_timer(kSoon, kLookAgain);
    } else {
      watch_preferred();
    }
  } else {
    attempt_ended({}, out_of_memory(), {});
  }
}

void Redial::set_timer(Timer timer, ae::Duration delay) noexcept {
  due_[timer] = Clock::now() + std::min(delay, kNever);
  arm();
}

void Redial::arm() noexcept {
  const ae::TimePoint next = *std::min_element(due_.begin(), due_.end());
  (void)loop_.again(wake_, std::min(next, Clock::now() + kNever));
}

ae::TimerId Redial::add_wake() {
  return loop_.add_time_event(kNever, [this] { return wake(); });
}

ae::Duration Redial::wake() {
  try {
    if (spare_ == 0) spare_ = add_wake();
  } catch (const std::bad_alloc&) {
    return kLookAgain;
  }
  const ae::TimerId mine = std::exchange(wake_, std::exchange(spare_, 0));
  arm();
  const std::shared_ptr<Life> life = life_;
  enter([this] { run_due(); });
  if (!life->alive || spare_ != 0) return ae::kNoMore;
  spare_ = mine;
  return kNever;
}

void Redial::run_due() {
  const std::shared_ptr<Life> life = life_;
  for (const Timer timer : {kPauseEnd, kAttemptEnd, kPreferAgain, kSoon}) {
    if (due_[timer] > Clock::now()) continue;
    clear_timer(timer);
    on_timer(timer);
    if (!life->alive) return;
  }
  arm();
}

// --- one attempt ---------------------------------------------------------------------------------

/// One attempt to connect. It waits until the DialLimit grants a place, connects, and proves the
/// connection with the program's probe; it ends with a proven connection or a failure.
class Redial::Attempt {
 public:
  using Done = std::function<void(ConnectionPtr, Failure, std::vector<Skipped>)>;
  enum class Which : bool { kAny, kPreferred };

  Attempt(Redial& owner, Which which, Done done)
      : owner_(owner), which_(which), done_(std::move(done)) {}
  ~Attempt() {
    *alive_ = false;
    owner_.clear_timer(kAttemptEnd);
  }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  void start() {
    DialLimit* const limit = owner_.settings_.limit;
    place_ = (limit != nullptr ? *limit : DialLimit::of_process()).enter(owner_.loop_, [this] {
      owner_.enter([this] { dial(); });
    });
    if (place_->holds()) {
      dial();
    } else {
      owner_.set_timer(kAttemptEnd, kLookAgain);
      (void)show(Phase::kInLine);
    }
  }

  void on_timer() {
    if (end_) return finish(std::move(end_));
    if (!place_->holds()) owner_.set_timer(kAttemptEnd, kLookAgain);
  }

 private:
  bool show(Phase phase) {
    // While a better connection is tried, the phase stays kUp, because the present one is in use.
    if (which_ == Which::kPreferred) return true;
    const auto alive = alive_;
    return owner_.set_phase(phase) && *alive;
  }

  void dial() {
    // A place that was granted between enter() and holds() is told twice.
    if (std::exchange(begun_, true)) return;
    owner_.clear_timer(kAttemptEnd);
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
      end_ = {std::make_error_code(std::errc::invalid_argument), error.what()};
      owner_.set_timer(kAttemptEnd, 0ms);
    }
  }

  void dialled(ConnectionPtr connection) {
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

  void prove() {
    connection_->set_close_handler([this](Connection& connection) {
      owner_.enter(
          [&] { finish(failure_of(connection, "the peer closed before it answered the probe")); });
    });
    end_ = {std::make_error_code(std::errc::timed_out), "the probe was not answered in time"};
    owner_.set_timer(kAttemptEnd, owner_.settings_.proof);
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
  void finish(Failure why) {
    owner_.clear_timer(kAttemptEnd);
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

  Redial& owner_;
  const Which which_;
  Done done_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  DialLimit::PlacePtr place_;
  bool begun_ = false;  // whether dial() was called
  const FallbackType* list_ = nullptr;
  std::unique_ptr<Dial> dial_;
  ConnectionPtr connection_;
  std::vector<Skipped> skipped_;
  // The failure to report when timer kAttemptEnd expires; empty while the attempt waits for a place
  // of the DialLimit.
  Failure end_;
};

// --- connecting ----------------------------------------------------------------------------------

Redial::Redial(const Registry& registry, ae::EventLoop& loop, Endpoint to, Handlers handlers,
               Settings settings)
    : registry_(registry),
      loop_(loop),
      to_(std::move(to)),
      handlers_(std::make_shared<const Handlers>(std::move(handlers))),
      settings_(settings),
      backoff_(settings.first_pause, settings.most_pause, seed_or_any(settings.seed)),
      prefer_pause_(settings.prefer_again, settings.prefer_again, seed_or_any(settings.seed)) {
  (void)route_to(registry_, to_, settings_.attempt);
  due_.fill(ae::TimePoint::max());
  wake_ = add_wake();
  set_timer(kPauseEnd, 0ms);
}

Redial::~Redial() {
  life_->alive = false;
  clear();
  loop_.remove_time_event(wake_);
  if (spare_ != 0) loop_.remove_time_event(spare_);
}

void Redial::clear() noexcept {
  attempt_.reset();
  preferred_.reset();
  better_.reset();
  connection_.reset();
  due_.fill(ae::TimePoint::max());
}

void Redial::stop() {
  phase_ = Phase::kStopped;
  clear();
}

void Redial::on_timer(Timer timer) {
  switch (timer) {
    case kPauseEnd:
      return begin();
    case kAttemptEnd:
      if (Attempt* const attempt = attempt_ ? attempt_.get() : preferred_.get())
        attempt->on_timer();
      return;
    case kPreferAgain:
      return try_preferred();
    case kSoon:
      if (!dropped_) return move_if_quiet();
      // Carries out drop(). If the attempt that drop() was called for has succeeded since, this
      // ends the connection, otherwise the attempt. A handler may destroy this object.
      return carry_out(std::exchange(dropped_, {}));
  }
}

void Redial::carry_out(Failure drop) {
  if (connection_)
    lose(std::move(drop));
  else if (attempt_)
    attempt_ended({}, std::move(drop), {});
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
  set_timer(kPauseEnd, backoff_.next(asked));
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

// --- the connection in other hands ---------------------------------------------------------------

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
      if (better_) set_timer(kSoon, 0ms);
      return;
    }
  } catch (const std::bad_alloc&) {
    why = out_of_memory();
  }
  preferred_.reset();
  better_.reset();
  clear_timer(kPreferAgain);
  clear_timer(kSoon);
  skipped_.clear();
  last_ = std::move(why);
  phase_ = Phase::kWaiting;
  count_loss();
  set_timer(kPauseEnd, backoff_.next(last_.retry_after));
}

/// Counts the loss of an established connection. One that has lasted long enough ends the growth of
/// the pauses.
void Redial::count_loss() noexcept {
  ++counters_.lost;
  if (Clock::now() - since_ >= settings_.stable) backoff_.reset();
}

// --- loss of the connection ----------------------------------------------------------------------

void Redial::lose(Failure why) {
  if (!connection_) return;
  // If the connection ends before the program's drop() was carried out, the reason passed to drop()
  // counts.
  if (dropped_) why = std::exchange(dropped_, {});
  Loss loss;
  loss.why = copy_of(why);
  loss.unconfirmed = unconfirmed();
  const ConnectionPtr lost = std::move(connection_);
  clear_timer(kPreferAgain);
  clear_timer(kSoon);
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
  set_timer(kSoon, 0ms);
}

std::uint64_t Redial::unconfirmed() const noexcept {
  if (!connection_) return 0;
  const std::uint64_t written = connection_->bytes_written() - written_before_;
  return written > confirmed_ ? written - confirmed_ : 0;
}

void Redial::confirm(std::uint64_t bytes) {
  confirmed_ += bytes;
  if (better_ && !is_set(kSoon) && unconfirmed() == 0) set_timer(kSoon, 0ms);
}

// --- back to the preferred scheme ----------------------------------------------------------------

void Redial::watch_preferred() {
  if (skipped_.empty() || settings_.prefer_again <= 0ms) return;
  set_timer(kPreferAgain, prefer_pause_.next());
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
/// present connection is confirmed. With unconfirmed data the program could not know whether the
/// peer has received it.
void Redial::move_if_quiet() {
  if (!better_ || !connection_ || unconfirmed() != 0 || dropped_) return;
  Loss loss;
  loss.why = {std::make_error_code(std::errc::operation_canceled),
              std::string(better_->type().name()) + " works again"};
  loss.moved = true;
  const ConnectionPtr old = std::move(connection_);
  old->set_close_handler(nullptr);
  clear_timer(kSoon);
  skipped_.clear();
  phase_ = Phase::kWaiting;  // there is no connection while down() runs
  if (!tell_down(*old, loss)) return;
  if (!better_) {  // it ended in a nested iteration of the loop
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
  if (is_set(kPauseEnd)) {
    set_timer(kPauseEnd, 0ms);
  } else if (connection_ && is_set(kPreferAgain)) {
    set_timer(kPreferAgain, 0ms);
  }
}

std::string Redial::describe() const {
  std::string text(to_string(phase_));
  if (phase_ == Phase::kUp && !skipped_.empty()) {
    text.append(" by ").append(connection_->type().name()).append("; ");
    return text + conn::describe(skipped_);
  }
  if (phase_ == Phase::kWaiting && is_set(kPauseEnd)) {
    const auto left = std::max(due_[kPauseEnd] - Clock::now(), ae::Duration::zero());
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(left).count();
    text.append(" ").append(std::to_string(ms)).append(" ms");
  }
  if (phase_ != Phase::kUp && phase_ != Phase::kTaken && last_)
    text.append(" after: ").append(last_.text);
  return text;
}

}}  // namespace conn
