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
// At the first signal it stops listening and tells the sessions, which end when they have answered
// the request under way; when the last of their connections has ended, it ends the loops. At a
// second signal, or when its limit is over, it aborts the connections that are left. Connections
// that the program dialled are not waited for.
//
// Sessions learn of the stop by co::Stream::next_request(), by a StopHook, or by
// Stopping::begun() (conn/stopping.h). docs/server.md has both kinds.

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

/// The graceful stop of a server on one loop or on several. Make it after the loops and after what
/// the sessions refer to, before the listeners. A server has one at a time.
class AECONN_API Stop {
 public:
  /// How far the stop has come. It only goes on.
  enum class Phase : std::uint8_t {
    kServing,   ///< no signal has arrived, and request() was not called
    kDraining,  ///< the server does not listen any more; sessions end
    kEnded,     ///< no session is left, or what was left has been aborted
  };
  /// Limits of a Stop, and what it calls. The functions run on the thread of the controlling loop.
  struct Settings {
    /// How long sessions may take to end; then they are aborted. Zero aborts them at once;
    /// ae::Duration::max() is no limit.
    ae::Duration limit = std::chrono::seconds(10);
    /// The signals that begin the stop. They are blocked on the constructing thread, and on threads
    /// that it makes later, and delivered to the loop by signalfd(2); handlers that the program has
    /// set for them do not run. Empty: none; the program calls request().
    std::vector<int> signals = {SIGINT, SIGTERM};
    std::function<void()> begins = {};  ///< called when the stop begins, before it stops listening
    /// Called at the end in place of ending the loops, for a program that runs them by other means.
    std::function<void()> ends = {};
  };
  using Left = Stopping::Left;  ///< number of connections and bytes that were aborted

  /// For a server on one loop. To be called on its thread, like the destructor, and before the
  /// program starts other threads that do not block the signals. Throws conn::Error if the kernel
  /// gives no descriptor, or std::bad_alloc.
  explicit Stop(ae::EventLoop& loop, Settings settings);
  explicit Stop(ae::EventLoop& loop) : Stop(loop, Settings()) {}  ///< with the default Settings
  /// For a server on the loops of a group, the first of which controls the stop: end none of them
  /// alone. At the end it calls loops.stop(). Not to be called on their threads; throws also
  /// ae::LoopError.
  explicit Stop(ae::LoopGroup& loops, Settings settings);
  explicit Stop(ae::LoopGroup& loops) : Stop(loops, Settings()) {}  ///< with the default Settings
  /// For a server whose sessions are on `serving`, and which the loop `control` of the calling
  /// thread controls; `control` is none of them. At the end it calls control.stop().
  Stop(ae::EventLoop& control, ae::Loops& serving, Settings settings);
  Stop(const Stop&) = delete;
  Stop& operator=(const Stop&) = delete;
  /// Destroys the handlers that it keeps, and listeners that are left, like that of a
  /// ListenerGroup. On another thread than that of the controlling loop it waits until that loop
  /// has let go of it, so the loop must run or have ended; `begins` and `ends` do not run
  /// afterwards. If the loops go on, another Stop may follow. Restores the calling thread's signal
  /// mask, unless a signal has arrived: the program is about to end then, and another signal must
  /// not kill it.
  ~Stop();

  /// Takes over a listener and destroys it when the stop begins, at once if it has begun. Its
  /// accept handler goes with it: if sessions live in there, pass it through keep(). Connections
  /// whose set-up is not over end with it, and are not counted. A listener of
  /// one loop is added on its thread, and only to the Stop of that loop; a ListenerGroup on any
  /// thread. An Acceptor of conn/co.h on one of the loops needs no call: it closes by itself.
  void add(ListenerPtr listener);
  /// Returns an accept handler for a listener on a loop of this thread that calls `handler`, which
  /// lives as long as this object, and with it the sessions that it holds. Throws ae::LoopError for
  /// a server on several loops.
  AcceptHandler keep(AcceptHandler handler);
  /// The same for conn::listen() on several loops: the handler of each loop lives as long as this
  /// object, or as its loop, and is destroyed on the loop's thread.
  std::function<AcceptHandler(ae::EventLoop&, std::size_t)> keep(
      std::function<AcceptHandler(ae::EventLoop&, std::size_t)> make);

  /// Does what a signal does. May be called on any thread, not in a signal handler.
  void request();
  Phase phase() const noexcept;  ///< how far the stop has come; may be called on any thread
  /// What was aborted. The bytes are output of these connections that had not left this machine, as
  /// far as it is known: not over rdma and shm. Valid in kEnded, on any thread.
  Left left() const noexcept;
  /// Exit status for main(): 0, or 1 if connections had to be aborted.
  int status() const noexcept { return left().connections == 0 ? 0 : 1; }

 private:
  struct Core;
  std::unique_ptr<ae::LoopList> only_;  // with one loop, a list of it
  ae::Loops& loops_;
  const std::shared_ptr<Core> core_;
};

}}  // namespace conn
