// SPDX-License-Identifier: BSD-3-Clause
#include "conn/redial.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "conn/detail/dial.h"
#include "conn/fallback_type.h"

namespace conn::inline AECONN_ABI {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

std::uint64_t seed_or_any(std::uint64_t seed) {
  if (seed != 0) return seed;
  std::random_device random;
  return (std::uint64_t{random()} << 32) | random();
}

Failure failure_of(const Connection& connection, const char* otherwise) {
  if (connection.error_code())
    return {connection.error_code(), connection.last_error(), connection.retry_after()};
  return {std::make_error_code(std::errc::connection_reset), otherwise};
}

std::string without_options(const Endpoint& endpoint) {
  Endpoint shown = endpoint;
  shown.options = {};  // there may be a pass phrase
  return shown.to_string();
}

/// How an attempt goes about it.
struct Route {
  const FallbackType* list = nullptr;
  std::vector<Way> ways;
  FallbackType::Times times{};
};

/// Throws Error.
Route route_to(const Registry& registry, const Endpoint& to, ae::Duration attempt) {
  Route route;
  ConnectionType& type = registry.require(to.scheme);
  type.check(to);
  route.list = dynamic_cast<const FallbackType*>(&type);
  if (route.list != nullptr) {
    route.ways = route.list->ways_to(to);
    route.times = route.list->times(to);
  } else {
    Way way;
    way.scheme = to.scheme;
    way.type = &type;
    way.to = to;
    Endpoint timed = to;
    timed.options.set("connect-timeout", "1s");
    try {
      type.check(timed);
      way.timed = true;
    } catch (const Error&) {  // it has no such option, and the attempt's own end counts
    }
    route.ways.push_back(std::move(way));
    route.times.timeout = to.options.duration("connect-timeout", attempt, 1ms, 24h);
  }
  if (!to.options.has("connect-timeout")) route.times.timeout = attempt;
  return route;
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
  }
  return "?";
}

// --- one attempt ---------------------------------------------------------------------------------

/// From the line to a connection that is proven, or to a failure.
class Redial::Attempt {
 public:
  using Done = std::function<void(ConnectionPtr, const Failure&, std::vector<NotTaken>)>;
  enum class Which : bool { kAny, kPreferred };

  Attempt(Redial& owner, Which which, Done done)
      : owner_(owner), which_(which), done_(std::move(done)) {}
  ~Attempt() {
    *alive_ = false;
    owner_.clear_timer(timer_);
  }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  void start() {
    DialLimit* const limit = owner_.settings_.limit;
    place_ = (limit != nullptr ? *limit : DialLimit::of_process()).enter(owner_.loop_, [this] {
      dial();
    });
    if (place_->holds()) {
      dial();
    } else {
      (void)tell(Phase::kInLine);
    }
  }

 private:
  bool tell(Phase phase) {
    if (which_ == Which::kPreferred) return true;  // a connection stands meanwhile
    const auto alive = alive_;
    return owner_.set_phase(phase) && *alive;
  }

  void dial() {
    if (!tell(Phase::kDialling)) return;
    try {
      Route route = route_to(owner_.registry_, owner_.to_, owner_.settings_.attempt);
      list_ = route.list;
      if (which_ == Which::kPreferred) route.ways.resize(1);
      dial_ = std::make_unique<Dial>(
          owner_.loop_, std::move(route.ways), route.times.delay, route.times.timeout,
          [this](ConnectionPtr connection) { dialled(std::move(connection)); });
    } catch (const Error& error) {
      owner_.set_timer(timer_, 0ms,
                       [this, failure = Failure{std::make_error_code(std::errc::invalid_argument),
                                                error.what()}] { finish(failure); });
    }
  }

  void dialled(ConnectionPtr connection) {
    const std::unique_ptr<Dial> over = std::move(dial_);
    if (which_ == Which::kAny) not_taken_ = over->not_taken();
    if (!connection) {
      finish(over->failure());
      return;
    }
    connection_ = std::move(connection);
    if (list_ != nullptr && !not_taken_.empty()) {
      list_->took(owner_.loop_, {without_options(owner_.to_),
                                 std::string(connection_->type().name()), not_taken_});
    }
    if (owner_.handlers_->prove) {
      prove();
    } else {
      finish({});
    }
  }

  void prove() {
    connection_->set_close_handler([this](Connection& connection) {
      finish(failure_of(connection, "the peer closed before it answered the probe"));
    });
    owner_.set_timer(timer_, owner_.settings_.proof, [this] {
      finish({std::make_error_code(std::errc::timed_out), "the probe was not answered in time"});
    });
    if (!tell(Phase::kProving)) return;
    const auto handlers = owner_.handlers_;
    handlers->prove(*connection_, [this, alive = alive_](bool good) {
      if (!*alive || !connection_) return;
      finish(good ? Failure{}
                  : Failure{std::make_error_code(std::errc::protocol_error),
                            "the probe found the connection no good"});
    });
  }

  /// This object is gone afterwards.
  void finish(const Failure& failure) {
    const Failure why = failure;
    owner_.clear_timer(timer_);
    place_.reset();
    ConnectionPtr connection = std::move(connection_);
    if (why) {
      connection.reset();
    } else {
      connection->clear_handlers();
    }
    const Done done = std::move(done_);
    done(std::move(connection), why, std::move(not_taken_));
  }

  Redial& owner_;
  const Which which_;
  Done done_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  DialLimit::PlacePtr place_;
  const FallbackType* list_ = nullptr;
  std::unique_ptr<Dial> dial_;
  ConnectionPtr connection_;
  std::vector<NotTaken> not_taken_;
  ae::TimerId timer_ = 0;
};

// --- the way to a connection ---------------------------------------------------------------------

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
  set_timer(pause_timer_, 0ms, [this] { begin(); });
}

Redial::~Redial() {
  *alive_ = false;
  clear();
}

void Redial::clear() noexcept {
  clear_timer(pause_timer_);
  clear_timer(prefer_timer_);
  clear_timer(soon_timer_);
  attempt_.reset();
  preferred_.reset();
  better_.reset();
  connection_.reset();
}

void Redial::stop() {
  phase_ = Phase::kStopped;
  clear();
}

void Redial::set_timer(ae::TimerId& timer, ae::Duration delay, std::function<void()> then) {
  clear_timer(timer);
  timer = loop_.add_time_event(delay, [&timer, then = std::move(then)] {
    timer = 0;
    then();
    return ae::kNoMore;
  });
}

void Redial::clear_timer(ae::TimerId& timer) {
  if (timer != 0) loop_.remove_time_event(timer);
  timer = 0;
}

/// False: this object is gone, or stopped.
bool Redial::set_phase(Phase phase) {
  phase_ = phase;
  const auto handlers = handlers_;
  const auto alive = alive_;
  if (handlers->changed) handlers->changed();
  return *alive && phase_ != Phase::kStopped;
}

void Redial::begin() {
  ++counters_.attempts;
  attempt_ = std::make_unique<Attempt>(
      *this, Attempt::Which::kAny,
      [this](ConnectionPtr connection, const Failure& failure, std::vector<NotTaken> not_taken) {
        attempt_ended(std::move(connection), failure, std::move(not_taken));
      });
  attempt_->start();
}

void Redial::attempt_ended(ConnectionPtr connection, const Failure& failure,
                           std::vector<NotTaken> not_taken) {
  attempt_.reset();
  if (connection) {
    stand(std::move(connection), std::move(not_taken));
    return;
  }
  ++counters_.failures;
  last_ = failure;
  pause(failure.retry_after);
}

void Redial::pause(ae::Duration asked) {
  const ae::Duration pause = backoff_.next(asked);
  next_try_ = Clock::now() + pause;
  set_timer(pause_timer_, pause, [this] { begin(); });
  (void)set_phase(Phase::kWaiting);
}

void Redial::stand(ConnectionPtr connection, std::vector<NotTaken> not_taken) {
  connection_ = std::move(connection);
  not_taken_ = std::move(not_taken);
  since_ = Clock::now();
  written_before_ = connection_->bytes_written();
  confirmed_ = 0;
  ++counters_.connected;
  connection_->set_close_handler(
      [this](Connection& ended) { lose(failure_of(ended, "the peer closed the connection")); });
  phase_ = Phase::kUp;
  watch_preferred();
  const auto handlers = handlers_;
  const auto alive = alive_;
  if (handlers->up) handlers->up(*connection_);
  if (*alive && handlers->changed) handlers->changed();
}

// --- its loss ------------------------------------------------------------------------------------

void Redial::lose(const Failure& why) {
  if (!connection_) return;
  Loss loss;
  loss.why = why;
  loss.unconfirmed = unconfirmed();
  const ConnectionPtr lost = std::move(connection_);
  clear_timer(prefer_timer_);
  clear_timer(soon_timer_);
  preferred_.reset();
  not_taken_.clear();
  last_ = why;
  ++counters_.lost;
  if (Clock::now() - since_ >= settings_.stable) backoff_.reset();
  phase_ = Phase::kWaiting;
  if (!tell_down(*lost, loss)) return;
  if (better_) {
    better_->set_close_handler(nullptr);
    stand(std::move(better_), {});
  } else {
    pause(why.retry_after);
  }
}

bool Redial::tell_down(Connection& connection, const Loss& loss) {
  const auto handlers = handlers_;
  const auto alive = alive_;
  if (handlers->down) handlers->down(connection, loss);
  return *alive && phase_ != Phase::kStopped;
}

void Redial::drop(const std::string& why) {
  const Failure failure{std::make_error_code(std::errc::protocol_error), why};
  if (!connection_ && !attempt_) return;
  set_timer(soon_timer_, 0ms, [this, failure] {
    // The attempt may have succeeded meanwhile.
    if (connection_)
      lose(failure);
    else if (attempt_)
      attempt_ended({}, failure, {});
  });
}

std::uint64_t Redial::unconfirmed() const noexcept {
  if (!connection_) return 0;
  const std::uint64_t written = connection_->bytes_written() - written_before_;
  return written > confirmed_ ? written - confirmed_ : 0;
}

void Redial::confirm(std::uint64_t bytes) {
  confirmed_ += bytes;
  if (better_ && soon_timer_ == 0 && unconfirmed() == 0)
    set_timer(soon_timer_, 0ms, [this] { move_if_quiet(); });
}

// --- back to the preferred scheme ----------------------------------------------------------------

void Redial::watch_preferred() {
  if (not_taken_.empty() || settings_.prefer_again <= 0ms) return;
  set_timer(prefer_timer_, prefer_pause_.next(), [this] { try_preferred(); });
}

void Redial::try_preferred() {
  preferred_ = std::make_unique<Attempt>(
      *this, Attempt::Which::kPreferred,
      [this](ConnectionPtr connection, const Failure& failure, const std::vector<NotTaken>&) {
        preferred_.reset();
        if (connection) {
          found_preferred(std::move(connection));
        } else {
          not_taken_.front().why = failure;
          not_taken_.front().kind = kind_of(failure.code);
          watch_preferred();
        }
      });
  preferred_->start();
}

void Redial::found_preferred(ConnectionPtr connection) {
  better_ = std::move(connection);
  better_->set_close_handler([this](Connection&) {
    better_.reset();
    watch_preferred();
  });
  move_if_quiet();
}

/// What was written to the old connection and not confirmed would be in doubt.
void Redial::move_if_quiet() {
  if (!better_ || !connection_ || unconfirmed() != 0) return;
  Loss loss;
  loss.why = {std::make_error_code(std::errc::operation_canceled),
              std::string(better_->type().name()) + " works again"};
  loss.moved = true;
  const ConnectionPtr old = std::move(connection_);
  old->set_close_handler(nullptr);
  clear_timer(soon_timer_);
  ++counters_.moved;
  if (!tell_down(*old, loss)) return;
  better_->set_close_handler(nullptr);
  stand(std::move(better_), {});
}

void Redial::try_now() {
  if (pause_timer_ != 0) {
    loop_.again(pause_timer_, 0ms);
  } else if (connection_ && prefer_timer_ != 0) {
    loop_.again(prefer_timer_, 0ms);
  }
}

std::string Redial::describe() const {
  std::string text(to_string(phase_));
  if (phase_ == Phase::kUp && !not_taken_.empty()) {
    text.append(" by ").append(connection_->type().name()).append("; ");
    return text + conn::describe(not_taken_);
  }
  if (phase_ == Phase::kWaiting && pause_timer_ != 0) {
    const auto left = std::max(next_try_ - Clock::now(), ae::Duration::zero());
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(left).count();
    text.append(" ").append(std::to_string(ms)).append(" ms");
  }
  if (phase_ != Phase::kUp && last_) text.append(" after: ").append(last_.text);
  return text;
}

}  // namespace conn::inline AECONN_ABI
