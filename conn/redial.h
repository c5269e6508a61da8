// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Keeps one connection to a place, for a client that outlives flaps of its link and restarts of its
// server:
//
//   conn::Redial redial(registry, loop, conn::Endpoint::parse("rdma|tcp://db:6379"),
//                       {.up = [&](conn::Connection& c) { ask_again(c); },
//                        .down = [&](conn::Connection&, const conn::Redial::Loss& loss) { ... }});
//
// Nothing is sent twice by it: what was written to a connection that was lost is the program's, and
// Loss says how much of it was not confirmed.
//
// A path that becomes silent is noticed within four seconds. rdma has its keepalive for that; over
// tcp and tls the options keepalive=1s and user-timeout=3s hold where the URL does not have them.
// Whatever an attempt fails for, memory and descriptors included, another one follows.

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/backoff.h"
#include "conn/connection.h"
#include "conn/dial_limit.h"
#include "conn/fallback.h"
#include "conn/registry.h"

namespace conn { inline namespace AECONN_ABI {

/// One connection that comes back.
class AECONN_API Redial {
 public:
  /// What it is doing.
  enum class Phase : std::uint8_t {
    kWaiting,   ///< a pause before the next attempt
    kInLine,    ///< as many as DialLimit allows are connecting
    kDialling,  ///< a connection is being made
    kProving,   ///< it stands, and the program's probe is under way
    kUp,        ///< connection() is there
    kStopped,   ///< stop() was called
  };
  /// How a connection went.
  struct Loss {
    Failure why;  ///< in words
    /// Bytes written to the connection for which confirm() was not called: they may have been done,
    /// or not, or in part.
    std::uint64_t unconfirmed = 0;
    /// The preferred scheme works again: up() comes next, with a connection over that.
    bool moved = false;
  };
  /// Says that the probe was answered (true) or that the connection is no good. Only the first call
  /// counts; one that comes too late does nothing.
  using Proved = std::function<void(bool)>;

  /// All run from the loop. Each may call any member, and may destroy the Redial.
  struct Handlers {
    /// A connection is there, and proven. It is Redial's: do not close it, drop() does; nor set its
    /// close handler. All other handlers are the program's.
    std::function<void(Connection&)> up;
    /// It is gone. What came before can still be read here; afterwards it is closed.
    std::function<void(Connection&, const Loss&)> down;
    /// Sends a request and awaits its answer, before up(). Where there is none, it is enough that
    /// the peer has room for data. Remove the handlers it sets before it calls Proved.
    std::function<void(Connection&, Proved)> prove;
    /// phase() or last_failure() has changed.
    std::function<void()> changed;
  };
  /// Times and limits; the defaults are for a network of one site.
  struct Settings {
    ae::Duration first_pause = std::chrono::milliseconds(50);  ///< after a loss or a failure
    ae::Duration most_pause = std::chrono::milliseconds(500);  ///< as it doubles
    /// For one attempt, where the URL has no connect-timeout. Short, so that one that began while
    /// the link was down does not outlive its return for long. A path on which a connection takes
    /// longer than this needs a connect-timeout in its URL.
    ae::Duration attempt = std::chrono::seconds(1);
    ae::Duration proof = std::chrono::seconds(2);  ///< for the probe
    /// One that stood for so long was a success: after its loss the first pause comes again.
    ae::Duration stable = std::chrono::seconds(5);
    /// How often the preferred scheme of a list is tried again; zero: never.
    ae::Duration prefer_again = std::chrono::seconds(30);
    DialLimit* limit = nullptr;  ///< null: DialLimit::of_process()
    std::uint64_t seed = 0;      ///< of the pauses; 0: another one each time
  };

  /// Begins at once. The registry and the loop outlive it. Throws Error for an endpoint that is
  /// wrong; files that it names are read by each attempt.
  Redial(const Registry& registry, ae::EventLoop& loop, Endpoint to, Handlers handlers,
         Settings settings);
  /// With the default settings.
  Redial(const Registry& registry, ae::EventLoop& loop, Endpoint to, Handlers handlers)
      : Redial(registry, loop, std::move(to), std::move(handlers), Settings()) {}
  /// Closes the connection, which delivers what was written. No handler runs any more.
  ~Redial();
  Redial(const Redial&) = delete;
  Redial& operator=(const Redial&) = delete;

  Phase phase() const noexcept { return phase_; }  ///< what it is doing now
  /// Null unless kUp. It is the transport's own, also where the URL has a list of schemes.
  Connection* connection() const noexcept { return connection_.get(); }
  /// Why the last attempt failed, or the last connection was lost; empty before.
  const Failure& last_failure() const noexcept { return last_; }
  /// Of the connection that stands: the schemes that were preferred to its own, and why not.
  const std::vector<Skipped>& not_taken() const noexcept { return skipped_; }
  /// "up", "waiting 120 ms after: connect to ...": for logs.
  std::string describe() const;

  /// The peer has answered for this many more bytes of what was written since up().
  void confirm(std::uint64_t bytes);
  /// Written since up() and not confirmed.
  std::uint64_t unconfirmed() const noexcept;

  /// Gives up the connection there is, or the attempt, and begins again after a pause.
  void drop(const std::string& why);
  /// Ends a pause, and tries the preferred scheme at once where another carries the connection.
  void try_now();
  /// Closes everything; down() does not run.
  void stop();

  /// Since it began.
  struct Counters {
    std::uint64_t attempts = 0;   ///< connections begun
    std::uint64_t failures = 0;   ///< of these, how many came to nothing
    std::uint64_t connected = 0;  ///< of these, how many stood and were proven
    std::uint64_t lost = 0;       ///< of these, how many ended
    std::uint64_t moved = 0;      ///< back to the preferred scheme
  };
  const Counters& counters() const noexcept { return counters_; }  ///< since it began

 private:
  class Attempt;
  enum Timer : std::uint8_t { kPauseEnd, kAttemptEnd, kPreferAgain, kSoon };
  /// Outlives the Redial while a step of it is on the stack.
  struct Life {
    bool alive = true;
    unsigned steps = 0;         // on the stack
    std::exception_ptr thrown;  // by a handler of the program, until the step is over
  };

  template <class Step>
  [[gnu::visibility("hidden")]] void enter(Step step);
  template <class Call>
  [[gnu::visibility("hidden")]] bool tell(Call call);
  void recover() noexcept;
  void begin();
  void attempt_ended(ConnectionPtr connection, Failure failure, std::vector<Skipped> not_taken);
  void stand(ConnectionPtr connection, std::vector<Skipped> not_taken);
  void lose(Failure why);
  void pause(ae::Duration asked);
  void watch_preferred();
  void try_preferred();
  void found_preferred(ConnectionPtr connection);
  void move_if_quiet();
  bool set_phase(Phase phase);
  bool tell_down(Connection& connection, const Loss& loss);
  bool is_set(Timer timer) const noexcept { return due_[timer] != ae::TimePoint::max(); }
  void set_timer(Timer timer, ae::Duration delay) noexcept;
  void clear_timer(Timer timer) noexcept { due_[timer] = ae::TimePoint::max(); }
  ae::TimerId add_wake();
  ae::Duration wake();
  void run_due();
  void on_timer(Timer timer);
  void arm() noexcept;
  void clear() noexcept;

  const Registry& registry_;
  ae::EventLoop& loop_;
  const Endpoint to_;
  const std::shared_ptr<const Handlers> handlers_;
  const Settings settings_;
  Backoff backoff_, prefer_pause_;
  const std::shared_ptr<Life> life_ = std::make_shared<Life>();
  Phase phase_ = Phase::kWaiting;
  std::unique_ptr<Attempt> attempt_;    // the one that is to become the connection
  std::unique_ptr<Attempt> preferred_;  // beside a connection that stands
  ConnectionPtr connection_;
  ConnectionPtr better_;  // proven; waits until nothing is unconfirmed
  std::vector<Skipped> skipped_;
  Failure last_;
  Failure dropped_;  // what drop() was told, until its time comes
  std::uint64_t written_before_ = 0, confirmed_ = 0;
  ae::TimePoint since_{};
  std::array<ae::TimePoint, 4> due_;  // of each Timer; max(): it is not set
  // Made once, so that no shortage of memory stops it: what a handler of the program throws ends
  // the event that it ran in, and the other one goes on.
  ae::TimerId wake_ = 0, spare_ = 0;
  Counters counters_;
};

AECONN_API std::string_view to_string(Redial::Phase phase) noexcept;  ///< "waiting", for logs

}}  // namespace conn
