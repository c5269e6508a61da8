// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Ends a server without losing a request.
//
//   ae::LibevLoop loop;
//   conn::Stop stop(loop);  // SIGINT and SIGTERM
//   co::Acceptor acceptor(registry, loop, url);
//   ...
//   loop.run();
//   return stop.status();
//
// At the first signal the Stop has the listeners accept the connections that have arrived, destroys
// the listeners, and notifies the sessions, each of which must end once it has answered the request
// in progress. When the last of their connections has ended, the Stop ends the loops. At a second
// signal, or when its time limit has passed, it aborts the connections that are left. It does not
// wait for connections that the program itself has opened with connect().
//
// Sessions learn of the stop by co::Stream::next_request(), by a StopHook, or by Stopping::begun()
// (conn/stopping.h). docs/server.md shows how.

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "ae/loop_group.h"
#include "ae/loops.h"
#include "conn/listener.h"
#include "conn/stopping.h"

namespace conn { inline namespace AECONN_ABI {

/// The graceful stop of a server on one loop or on several. Create it after the loops and after the
/// objects that the sessions refer to, but before the listeners. A server has at most one Stop at a
/// time.
class AECONN_API Stop {
 public:
  /// The phases of a stop, in the order in which they follow each other.
  enum class Phase : std::uint8_t {
    kServing,   ///< no signal has arrived, and request() was not called
    kDraining,  ///< the server accepts what has arrived, then does not listen; sessions end
    kEnded,     ///< no session is left, or the remaining connections have been aborted
  };
  /// Limits of a Stop, and what it calls. The functions run on the thread of the controlling loop.
  struct Settings {
    /// The longest time that sessions may take to end; the connections of the remaining ones are
    /// then aborted. Zero aborts all connections at once; ae::Duration::max() means no limit.
    ae::Duration limit = std::chrono::seconds(10);
    /// The signals that begin the stop. They are blocked on the constructing thread, and on threads
    /// that it makes later, and delivered to the loop by signalfd(2); handlers that the program has
    /// set for them do not run. Empty: none; the program calls request().
    std::vector<int> signals = {SIGINT, SIGTERM};
    /// Called when the stop of the server begins, before the listeners are destroyed.
    std::function<void()> begins = {};
    /// If set, called at the end of the stop instead of ending the loops, for a program that ends
    /// the loops by other means.
    std::function<void()> ends = {};
  };
  using Left = Stopping::Left;  ///< number of connections and bytes that were aborted

  /// Creates a Stop for a server on one loop. Must be called on the loop's thread or while no
  /// thread runs the loop, and before the program starts any thread that does not block the
  /// signals. Throws conn::Error if the kernel gives no descriptor, or std::bad_alloc.
  explicit Stop(ae::EventLoop& loop, Settings settings);
  explicit Stop(ae::EventLoop& loop) : Stop(loop, Settings()) {}  ///< uses default Settings
  /// Creates a Stop for a server on all loops of a group. The group's first loop controls the stop.
  /// No loop of the group may be ended alone, by its own stop(). At the end the Stop calls
  /// loops.stop(). Throws ae::LoopError on a thread of the group or if a loop has ended; otherwise
  /// throws like the constructor for one loop.
  explicit Stop(ae::LoopGroup& loops, Settings settings);
  explicit Stop(ae::LoopGroup& loops) : Stop(loops, Settings()) {}  ///< uses default Settings
  /// Creates a Stop for a server whose sessions are on the loops `serving`. The loop `control`,
  /// which must be on the calling thread and not one of `serving`, controls the stop. At the end
  /// the Stop calls control.stop().
  Stop(ae::EventLoop& control, ae::Loops& serving, Settings settings);
  Stop(const Stop&) = delete;
  Stop& operator=(const Stop&) = delete;
  /// Destroys the handlers that keep() stored, and the listeners that are left, as the destructor
  /// of a ListenerGroup does; those of a server on one loop are destroyed on the loop's thread. If
  /// it is called on another thread than the one that ran the controlling loop last, it waits
  /// until that loop no longer uses this object, so the loop must run or have ended. It does not
  /// wait on the thread that passed that loop to the constructor: no other thread may be running
  /// the loop then. `begins` and `ends` do not run afterwards. If the loops go on, another Stop may
  /// be created. Restores the calling thread's signal mask, unless a signal has arrived: the
  /// program is then about to end, and another signal must not kill it.
  ~Stop();

  /// Takes ownership of a listener, and destroys it soon after the stop begins, or at once if it
  /// has begun. Before it destroys listeners, their accept handlers get the connections that are in
  /// the backlogs of the loops that serve, whoever owns the listener: as far as max-connections
  /// allows, and within one second, or half of the limit if that is less. A listener that is paused
  /// then accepts none. A connection that arrives while its listener is being destroyed is reset.
  /// Destroying a listener also destroys its accept handler: if the handler owns the sessions, pass
  /// it through keep(). Connections whose set-up is not complete end with the listener, and are not
  /// counted. A listener of one loop must be added on the loop's thread, and only to the Stop of
  /// that loop; a ListenerGroup may be added on any thread. A co::Acceptor (conn/co.h) on one of
  /// the loops need not be added: it closes by itself when the stop begins.
  void add(ListenerPtr listener);
  /// Returns an accept handler, for a listener on a loop of this thread, that calls `handler`.
  /// `handler`, and with it the sessions that it owns, lives as long as this object. Throws
  /// ae::LoopError for a server on several loops.
  AcceptHandler keep(AcceptHandler handler);
  /// Returns a function for conn::listen() on several loops that calls `make`. The handler that
  /// `make` returns for a loop lives until this object or the loop is destroyed; it is destroyed on
  /// the loop's thread.
  std::function<AcceptHandler(ae::EventLoop&, std::size_t)> keep(
      std::function<AcceptHandler(ae::EventLoop&, std::size_t)> make);

  /// Has the effect of a signal: begins the stop, or, if it has begun and the listeners are
  /// destroyed, aborts the connections that are left. May be called on any thread, but not in a
  /// signal handler.
  void request();
  Phase phase() const noexcept;  ///< returns the present phase; may be called on any thread
  /// Returns how many connections were aborted, and how many bytes of their output had not left
  /// this machine, as far as that is known (it is not over rdma and shm). Valid in phase kEnded, on
  /// any thread.
  Left left() const noexcept;
  /// Exit status for main(): 0, or 1 if connections had to be aborted.
  int status() const noexcept { return left().connections == 0 ? 0 : 1; }

 private:
  struct Core;
  std::unique_ptr<ae::LoopList> only_;  // contains the one loop; null for a server on several loops
  ae::Loops& loops_;
  const std::shared_ptr<Core> core_;
};

}}  // namespace conn
