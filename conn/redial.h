// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Keeps one connection to a place and reconnects, for clients that must survive link failures and
// server restarts:
//
//   conn::Redial redial(registry, loop, conn::Endpoint::parse("rdma|tcp://db:6379"),
//                       {.up = [&](conn::Connection& c) { ask_again(c); },
//                        .down = [&](conn::Connection&, const conn::Redial::Loss& loss) { ... }});
//
// It never sends data twice: data written to a lost connection is left to the program, and Loss
// says how much of it was not confirmed.
//
// An unresponsive path is detected within four seconds. rdma has its keepalive for that; over tcp
// and tls the options keepalive=1s and user-timeout=3s apply unless the URL sets them. Every failed
// attempt is followed by another, whatever the reason, including lack of memory or descriptors.

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

/// A connection that is re-established after a loss.
class AECONN_API Redial {
 public:
  /// Current activity.
  enum class Phase : std::uint8_t {
    kWaiting,   ///< pausing before the next attempt
    kInLine,    ///< waiting because DialLimit is reached
    kDialling,  ///< connecting
    kProving,   ///< connected, and the program's probe is in progress
    kUp,        ///< connection() is usable
    kStopped,   ///< stop() was called
  };
  /// How a connection ended.
  struct Loss {
    Failure why;  ///< the reason, as text and code
    /// Bytes written to the connection that were not confirmed with confirm(). The peer may have
    /// processed all, some or none of them.
    std::uint64_t unconfirmed = 0;
    /// The preferred scheme works again; up() runs next, with a connection over it.
    bool moved = false;
  };
  /// Reports that the probe was answered (true) or that the connection is unusable. Only the first
  /// call counts; a late call has no effect.
  using Proved = std::function<void(bool)>;

  /// All run from the loop. Each may call any member, and may destroy the Redial.
  struct Handlers {
    /// The connection is established and the probe has succeeded. Redial owns it: use drop()
    /// instead of closing it, and do not set its close handler. The program may set all other
    /// handlers.
    std::function<void(Connection&)> up;
    /// The connection is lost. Data received before can still be read here; it is closed
    /// afterwards.
    std::function<void(Connection&, const Loss&)> down;
    /// Sends a request and waits for its answer, before up(). Without this handler, it is enough
    /// that the connection accepts data. Remove the handlers it sets before it calls Proved.
    std::function<void(Connection&, Proved)> prove;
    /// phase() or last_failure() has changed.
    std::function<void()> changed;
  };
  /// Times and limits; the defaults suit a network within one site.
  struct Settings {
    ae::Duration first_pause = std::chrono::milliseconds(50);  ///< after a loss or a failure
    ae::Duration most_pause = std::chrono::milliseconds(500);  ///< limit for the doubled pauses
    /// Time-out of one attempt if the URL has no connect-timeout. It is short so that an attempt
    /// started while the link was down does not last long after the link returns. A path where
    /// connecting takes longer needs connect-timeout in its URL.
    ae::Duration attempt = std::chrono::seconds(1);
    ae::Duration proof = std::chrono::seconds(2);  ///< time-out of the probe
    /// A connection that lasted this long counts as a success: pauses start again with the first.
    ae::Duration stable = std::chrono::seconds(5);
    /// Interval between attempts to return to the preferred scheme of a list; zero: never.
    ae::Duration prefer_again = std::chrono::seconds(30);
    DialLimit* limit = nullptr;  ///< null: DialLimit::of_process()
    std::uint64_t seed = 0;      ///< for the random pauses; 0: a different one each time
  };

  /// Starts immediately. The registry and the loop must outlive it. Throws Error for an invalid
  /// endpoint; each attempt reads the files that it names.
  Redial(const Registry& registry, ae::EventLoop& loop, Endpoint to, Handlers handlers,
         Settings settings);
  /// Uses the default settings.
  Redial(const Registry& registry, ae::EventLoop& loop, Endpoint to, Handlers handlers)
      : Redial(registry, loop, std::move(to), std::move(handlers), Settings()) {}
  /// Closes the connection gracefully, so written data is delivered. No further handlers run.
  ~Redial();
  Redial(const Redial&) = delete;
  Redial& operator=(const Redial&) = delete;

  Phase phase() const noexcept { return phase_; }  ///< current activity
  /// Null unless kUp. It is the transport's own connection, even if the URL has a list of schemes.
  Connection* connection() const noexcept { return connection_.get(); }
  /// Why the last attempt failed or the last connection was lost; empty if neither has happened.
  const Failure& last_failure() const noexcept { return last_; }
  /// The schemes preferred to that of the current connection, and why they were not taken.
  const std::vector<Skipped>& not_taken() const noexcept { return skipped_; }
  /// "up", "waiting 120 ms after: connect to ...", for logs.
  std::string describe() const;

  /// Reports that the peer has answered for `bytes` more of the bytes written since up().
  void confirm(std::uint64_t bytes);
  /// Bytes written since up() and not confirmed.
  std::uint64_t unconfirmed() const noexcept;

  /// Abandons the current connection or attempt, and starts again after a pause.
  void drop(const std::string& why);
  /// Ends a pause; if another scheme carries the connection, tries the preferred one immediately.
  void try_now();
  /// Closes everything; down() does not run.
  void stop();

  /// Totals since construction.
  struct Counters {
    std::uint64_t attempts = 0;   ///< attempts started
    std::uint64_t failures = 0;   ///< attempts that failed
    std::uint64_t connected = 0;  ///< connections established and proven
    std::uint64_t lost = 0;       ///< connections that ended
    std::uint64_t moved = 0;      ///< moves back to the preferred scheme
  };
  const Counters& counters() const noexcept { return counters_; }  ///< totals since construction

 private:
  class Attempt;
  enum Timer : std::uint8_t { kPauseEnd, kAttemptEnd, kPreferAgain, kSoon };
  /// Kept alive by the steps of the Redial that are on the stack; it may outlive the Redial.
  struct Life {
    bool alive = true;
    unsigned steps = 0;         // steps on the stack
    std::exception_ptr thrown;  // by a handler of the program, kept until the step ends
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
  std::unique_ptr<Attempt> attempt_;    // the attempt to establish the connection
  std::unique_ptr<Attempt> preferred_;  // in parallel with an established connection
  ConnectionPtr connection_;
  ConnectionPtr better_;  // proven; takes over once no bytes are unconfirmed
  std::vector<Skipped> skipped_;
  Failure last_;
  Failure dropped_;  // the reason given to drop(), until it takes effect
  std::uint64_t written_before_ = 0, confirmed_ = 0;
  ae::TimePoint since_{};
  std::array<ae::TimePoint, 4> due_;  // time of each Timer; max(): not set
  // Allocated in advance, so that lack of memory cannot stop the timers: an exception thrown by a
  // handler of the program ends the time event it ran in, and the other one takes over.
  ae::TimerId wake_ = 0, spare_ = 0;
  Counters counters_;
};

AECONN_API std::string_view to_string(Redial::Phase phase) noexcept;  ///< "waiting", for logs

}}  // namespace conn
