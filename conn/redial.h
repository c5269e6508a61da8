// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Redial: keeps a client connected to one endpoint: when the connection is lost, it connects again.
// For clients that must survive link failures and server restarts:
//
//   conn::Redial redial(registry, loop, conn::Endpoint::parse("rdma|tcp://db:6379"),
//                       {.up = [&](conn::Connection& c) { ask_again(c); },
//                        .down = [&](conn::Connection&, const conn::Redial::Loss& loss) { ... }});
//
// A Redial never sends data twice: what to do about data written to a lost connection is left to
// the program, and Loss says how much of that data the peer has not confirmed.
//
// An unresponsive path is detected within four seconds. rdma has its keepalive for that; over tcp
// and tls the options keepalive=1s and user-timeout=3s apply unless the URL sets them. Every failed
// attempt is followed by another, whatever the reason, including lack of memory or descriptors.
//
// An rdma connection with resume=yes in its URL is not lost if its path is back within resume-time:
// none of the Handlers runs, and no new connection is made.

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

class OneShotTimer;

/// A client's connection that is connected again after each loss.
class AECONN_API Redial {
 public:
  /// The present activity of a Redial.
  enum class Phase : std::uint8_t {
    kWaiting,   ///< the Redial waits until the pause before the next attempt has ended
    kInLine,    ///< the Redial waits in the queue of its DialLimit for the permission to connect
    kDialling,  ///< a connection attempt is in progress
    kProving,   ///< connected; the program's probe (Handlers::prove) is in progress
    kUp,        ///< connected: connection() returns a connection that the program can use
    kStopped,   ///< the program has called stop(): no further attempts
    kTaken,     ///< the program has taken the connection with take(), until give_back()
  };
  /// Describes how an established connection ended.
  struct Loss {
    Failure why;  ///< the reason why the connection ended, as an error code and text
    /// Number of bytes written to the connection that the program has not confirmed with confirm().
    /// The peer may have processed all, some or none of them.
    std::uint64_t unconfirmed = 0;
    /// True if the connection is replaced because the preferred scheme works again. Handlers::up
    /// runs next, with a connection over that scheme.
    bool moved = false;
  };
  /// A function that a probe (Handlers::prove) calls: with true when the probe was answered, or
  /// with false if the connection cannot be used. Only the first call has an effect; a call after
  /// the time-out Settings::proof has none.
  using Proved = std::function<void(bool)>;

  /// The program's handlers. All run from the loop; each may call any member of the Redial, and may
  /// destroy it.
  struct Handlers {
    /// Called when the connection is established and the probe has succeeded. Redial owns the
    /// connection: call drop() instead of closing it, and do not set its close handler. The program
    /// may set all other handlers.
    std::function<void(Connection&)> up = nullptr;
    /// Called when the connection is lost. Data received before can still be read inside the
    /// handler; the connection is closed afterwards. Inside the handler, phase() is kWaiting.
    std::function<void(Connection&, const Loss&)> down = nullptr;
    /// A probe of a new connection: sends a request and waits for its answer, then calls Proved. It
    /// runs before `up`. Without this handler, it is enough that the connection accepts data. The
    /// probe must remove the handlers that it has set on the connection before it calls Proved.
    std::function<void(Connection&, Proved)> prove = nullptr;
    /// Called whenever the result of phase() or last_failure() has changed.
    std::function<void()> changed = nullptr;
  };
  /// Times and limits of a Redial. The defaults suit a network within one site.
  struct Settings {
    /// Limit of the first pause between attempts after a loss or a failure. Each pause is a random
    /// time between half its limit and its limit.
    ae::Duration first_pause = std::chrono::milliseconds(50);
    /// Largest limit of a pause between attempts: the limit doubles with each failed attempt up to
    /// this value.
    ae::Duration most_pause = std::chrono::milliseconds(500);
    /// Time-out of one attempt if the URL has no connect-timeout. It is short, so that an attempt
    /// started while the link was down does not last long after the link is back. If connecting
    /// takes longer on a path, its URL needs a connect-timeout.
    ae::Duration attempt = std::chrono::seconds(1);
    /// Time-out of the program's probe, Handlers::prove.
    ae::Duration proof = std::chrono::seconds(2);
    /// If a connection has lasted for this time when it is lost, the pauses between attempts start
    /// again with first_pause.
    ae::Duration stable = std::chrono::seconds(5);
    /// Longest interval between attempts to return to the preferred scheme while another scheme of
    /// the list is in use; 0: no such attempts. Each interval is a random time between half of this
    /// value and this value.
    ae::Duration prefer_again = std::chrono::seconds(30);
    /// Limits how many connection attempts are in progress at once; null: DialLimit::of_process().
    DialLimit* limit = nullptr;
    /// Seed of the random numbers for pauses; 0: a different one each time.
    std::uint64_t seed = 0;
  };

  /// Creates a Redial and starts its first connection attempt. The registry and the loop must
  /// outlive this object. Throws Error for an invalid endpoint. Each attempt reads the files that
  /// the endpoint names.
  Redial(const Registry& registry, ae::EventLoop& loop, Endpoint to, Handlers handlers,
         Settings settings);
  /// Creates a Redial like the other constructor, with the default Settings.
  Redial(const Registry& registry, ae::EventLoop& loop, Endpoint to, Handlers handlers)
      : Redial(registry, loop, std::move(to), std::move(handlers), Settings()) {}
  /// Closes the connection gracefully, so that written data is still delivered. None of the
  /// Handlers runs any more.
  ~Redial();
  Redial(const Redial&) = delete;
  Redial& operator=(const Redial&) = delete;

  Phase phase() const noexcept { return phase_; }  ///< the present activity of this Redial
  /// The connection in use; null unless phase() is kUp. Its type is the transport's own, even if
  /// the URL has a list of schemes.
  Connection* connection() const noexcept { return connection_.get(); }
  /// The reason of the last failure or loss: why the last attempt failed, or why the last
  /// connection was lost; empty: there was none yet.
  const Failure& last_failure() const noexcept { return last_; }
  /// The schemes that the URL lists before the scheme of the current connection, and why they were
  /// skipped.
  const std::vector<Skipped>& not_taken() const noexcept { return skipped_; }
  /// Returns a description of phase() for logs: "up", "waiting 120 ms after: connect to ...".
  std::string describe() const;

  /// Tells the Redial that the peer has processed `bytes` more of the bytes written since
  /// Handlers::up ran.
  void confirm(std::uint64_t bytes);
  /// Returns how many of the bytes written since Handlers::up ran were not yet confirmed with
  /// confirm().
  std::uint64_t unconfirmed() const noexcept;

  /// Ends the current connection or attempt, soon, from the loop, and connects again after a pause.
  /// `why` becomes the reason of the loss. Does nothing if there is no connection or attempt.
  void drop(const std::string& why);
  /// Ends a pause immediately. If another scheme than the preferred one carries the connection,
  /// tries the preferred one immediately.
  void try_now();
  /// Closes the connection and makes no further attempts. Handlers::down does not run.
  void stop();

  /// Releases the connection to the caller, without handlers: the caller owns it, and none of the
  /// Handlers runs when it is lost. The Redial makes no other connection until give_back(). Returns
  /// null unless phase() is kUp, and after drop().
  [[nodiscard]] ConnectionPtr take() noexcept;
  /// Gives back the connection that take() released. If `connection` is established, and its peer
  /// is not known to have closed, the Redial owns it again, and unconfirmed() is 0. Otherwise it
  /// counts as lost, and the Redial starts again after a pause; if `connection` is null, `why`
  /// becomes the reason of the loss. No handler runs inside this call. If phase() is not kTaken,
  /// this function only closes `connection`.
  void give_back(ConnectionPtr connection, Failure why = {}) noexcept;

  /// Numbers of attempts and connections since the Redial was created.
  struct Counters {
    std::uint64_t attempts = 0;   ///< number of connection attempts started
    std::uint64_t failures = 0;   ///< number of connection attempts that failed
    std::uint64_t connected = 0;  ///< number of connections established whose probe succeeded
    std::uint64_t lost = 0;       ///< number of established connections that ended
    std::uint64_t moved = 0;  ///< number of times the connection moved back to the preferred scheme
  };
  /// Returns the numbers of attempts and connections since this object was created.
  const Counters& counters() const noexcept { return counters_; }

 private:
  class Attempt;
  /// Shared by this Redial and by those of its member functions that are executing: after each call
  /// of a handler they check whether the handler has destroyed the Redial.
  struct Life {
    bool alive = true;
    unsigned steps = 0;  // number of calls of enter() that are executing, which may be nested
    // Exception that a handler of the program threw. It is rethrown when the outermost call of
    // enter() ends.
    std::exception_ptr thrown;
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
  void watch(Connection& connection);
  void count_loss() noexcept;
  void pause(ae::Duration asked);
  void watch_preferred();
  void try_preferred();
  void found_preferred(ConnectionPtr connection);
  void move_if_quiet();
  bool set_phase(Phase phase);
  bool tell_down(Connection& connection, const Loss& loss);
  void on_soon();
  void clear() noexcept;

  const Registry& registry_;
  ae::EventLoop& loop_;
  const Endpoint to_;
  const std::shared_ptr<const Handlers> handlers_;
  const Settings settings_;
  Backoff backoff_, prefer_pause_;
  const std::shared_ptr<Life> life_ = std::make_shared<Life>();
  Phase phase_ = Phase::kWaiting;
  std::unique_ptr<Attempt> attempt_;  // the attempt to connect that is in progress; null: none
  // The attempt to connect over the URL's preferred scheme while the connection in use has another
  // scheme; null: none.
  std::unique_ptr<Attempt> preferred_;
  ConnectionPtr connection_;
  // An established connection over the preferred scheme that will replace the one in use
  // (connection_) once the program has confirmed all bytes written to that one; null: none.
  ConnectionPtr better_;
  std::vector<Skipped> skipped_;
  Failure last_;
  Failure dropped_;  // reason that drop() was called with, kept until drop() takes effect
  std::uint64_t written_before_ = 0, confirmed_ = 0;
  ae::TimePoint since_{};
  // Timers: pause_end_ expires at the end of the pause before the next attempt, prefer_again_ when
  // the preferred scheme is to be tried again, and soon_ when the loop is to carry out drop() or to
  // replace the connection by one over the preferred scheme.
  const std::unique_ptr<OneShotTimer> pause_end_, prefer_again_, soon_;
  Counters counters_;
};

/// Returns the name of a phase, for logs: "waiting".
AECONN_API std::string_view to_string(Redial::Phase phase) noexcept;

}}  // namespace conn
