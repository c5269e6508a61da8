// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The stop of a server (conn/stop.h), as one of its loops sees it: whether it has begun, and which
// objects must be notified.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/listener.h"

namespace conn { inline namespace AECONN_ABI {

class ConnectionSet;
class Stopping;

/// An object that is notified once, on its loop's thread, when the server begins to stop.
/// Destroying it cancels the notification.
class AECONN_API StopWatcher {
 public:
  StopWatcher() = default;
  StopWatcher(const StopWatcher&) = delete;
  StopWatcher& operator=(const StopWatcher&) = delete;
  /// Called when the server begins to stop. The watcher is no longer registered, and may destroy
  /// itself or other watchers. If it throws, the other watchers are still called; afterwards the
  /// exception leaves the loop's run(), like an exception of any handler. If several watchers
  /// throw, only the first exception does so.
  virtual void on_stop() = 0;
  /// Called before on_stop(), when the listeners begin to accept the connections that have arrived.
  /// Must call no handler of the program.
  virtual void on_accepting() noexcept {}
  void stop_watching() noexcept;  ///< cancels the notification that Stopping::add() requested

 protected:
  virtual ~StopWatcher() { stop_watching(); }

 private:
  friend class Stopping;
  StopWatcher* next_ = nullptr;
  StopWatcher** link_ = nullptr;
};

/// A StopWatcher that runs a function.
class AECONN_API StopHook final : private StopWatcher {
 public:
  /// Runs `begins` once, on the thread of `loop`, when the server begins to stop; if the stop has
  /// begun already, from a timer that expires at once. An exception that `begins` throws is treated
  /// like one of StopWatcher::on_stop(). Create and destroy this object on that thread, before the
  /// loop ends. Throws std::bad_alloc.
  StopHook(ae::EventLoop& loop, std::function<void()> begins);

 private:
  void on_stop() override { std::function<void()>(std::move(begins_))(); }
  std::function<void()> begins_;
};

/// The part of a server's graceful stop that belongs to one loop: whether the stop has begun there,
/// and what must be called then. It exists also if the program has no Stop (conn/stop.h), which
/// stops all loops of a server. To be used on the loop's thread.
class AECONN_API Stopping final : public ae::LoopLocal {
 public:
  /// Returns the one Stopping of `loop`. Throws std::bad_alloc, only at the first call for a loop.
  static Stopping& of(ae::EventLoop& loop);
  Stopping(ae::EventLoop& loop, ConnectionSet& connections);  ///< called by of(), not by programs
  ~Stopping() override;

  /// Returns whether the server has begun to stop: a session should end once it has answered the
  /// request in progress. False again soon after the Stop is destroyed.
  bool begun() const noexcept { return begun_; }
  /// Returns whether half of the stop's time limit (Stop::Settings::limit) has passed: a session
  /// should then end after the request in progress, even if the next request has already arrived.
  bool hurries() const noexcept { return begun_ && loop_.now() >= hurries_from_; }
  /// Adds a watcher without owning it. It remains added until it is notified or destroyed, and must
  /// not be in any Stopping yet. If the stop has begun, the watcher is notified from a timer that
  /// expires at once. Throws std::bad_alloc, but only if the stop has begun.
  void add(StopWatcher& watcher);

  // --- for the class Stop, not for programs ------------------------------------------------------
  /// The result of cut(): how many connections it aborted, and how many bytes of their output had
  /// not left this machine.
  struct Left {
    std::size_t connections = 0;  ///< number of connections that were aborted
    /// Number of bytes in the output of these connections that had not left this machine.
    std::uint64_t bytes = 0;
  };
  /// Returns whether accept_arrived() was called, and has not finished or been stopped yet.
  bool accepting() const noexcept { return accept_timer_ != 0; }
  /// Accepts the connections that have arrived on this loop, in several iterations, with the
  /// handlers of their listeners. Then calls `done` once, from the loop: at the latest in the
  /// iteration after `until` or when the loop ends. begin(), cut() and end() stop it, without the
  /// call. A paused listener accepts nothing. Throws std::bad_alloc, and then nothing has begun.
  void accept_arrived(ae::TimePoint until, std::function<void()> done);
  /// Begins the stop: notifies the watchers, and calls `drained` once, from the loop, when no
  /// served connection is left (ConnectionSet::served()) or the loop ends. Throws std::bad_alloc if
  /// there is no memory; nothing has begun then. If watchers throw, throws the first of these
  /// exceptions after all watchers have been notified.
  void begin(ae::TimePoint hurries_from, std::function<void()> drained);
  /// Aborts the served connections that are left. The program's handlers see these connections as
  /// failed.
  Left cut() noexcept;
  /// Ends the stop, when the Stop that called begin() is destroyed: begun() is false again, and
  /// `drained` is not called.
  void end() noexcept;
  /// Stores an accept handler until forget() is called, or until the loop ends.
  void keep(std::shared_ptr<const AcceptHandler> handler);
  void forget() noexcept;  ///< destroys the accept handlers that keep() stored

 private:
  class End;
  void tell();
  ae::Duration accept_some();
  void end_accepting();
  void stop_accepting() noexcept;

  ae::EventLoop& loop_;
  ConnectionSet& connections_;
  bool begun_ = false;
  ae::TimePoint hurries_from_{};
  StopWatcher* watchers_ = nullptr;
  std::function<void()> drained_;  // the function passed to begin(); empty once it was called
  ae::TimerId timer_ = 0;          // calls drained_ once no served connection is left; 0: not set
  std::vector<std::shared_ptr<const AcceptHandler>> kept_;
  std::unique_ptr<End> end_;        // destroys the stored accept handlers just before the loop ends
  std::function<void()> accepted_;  // argument of accept_arrived(); empty once it was called
  ae::TimePoint accept_until_{};    // when accepting ends at the latest
  ae::TimerId accept_timer_ = 0;    // timer that accepts further connections; 0: not set
};

}}  // namespace conn
