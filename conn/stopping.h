// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a loop knows of the stop of its server (conn/stop.h): whether it has begun, and whom to
// tell.

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

/// An object that is told once when the server begins to stop, on its loop's thread. Destroying it
/// ends that.
class AECONN_API StopWatcher {
 public:
  StopWatcher() = default;
  StopWatcher(const StopWatcher&) = delete;
  StopWatcher& operator=(const StopWatcher&) = delete;
  /// The server begins to stop. The watcher is no longer registered, and may destroy itself or
  /// others.
  virtual void on_stop() = 0;
  void stop_watching() noexcept;  ///< ends what Stopping::add() began

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
  /// Runs `begins` once, on the thread of `loop`, when the server begins to stop; in the loop's
  /// next iteration if it has begun. To be created and destroyed on that thread, before the loop's
  /// end. Throws std::bad_alloc.
  StopHook(ae::EventLoop& loop, std::function<void()> begins);

 private:
  void on_stop() override { std::function<void()>(std::move(begins_))(); }
  std::function<void()> begins_;
};

/// The stop of a server as one of its loops sees it. Each loop has one, with or without a Stop. To
/// be used on the loop's thread.
class AECONN_API Stopping final : public ae::LoopLocal {
 public:
  /// Returns the one Stopping of `loop`. Throws std::bad_alloc, only at the first call for a loop.
  static Stopping& of(ae::EventLoop& loop);
  Stopping(ae::EventLoop& loop, ConnectionSet& connections);  ///< called by of(), not by programs
  ~Stopping() override;

  /// Whether the server has begun to stop: a session should end when it has answered the request
  /// under way. False again soon after the Stop is destroyed.
  bool begun() const noexcept { return begun_; }
  /// Whether half of the limit of the stop is over: a session should then end after the request
  /// under way even if the next one has arrived.
  bool hurries() const noexcept { return begun_ && loop_.now() >= hurries_from_; }
  /// Adds a watcher, without owning it, until it is told or destroyed. It must not be in any
  /// Stopping. If the stop has begun, it is told in the loop's next iteration. Throws
  /// std::bad_alloc, only if the stop has begun.
  void add(StopWatcher& watcher);

  // --- for Stop ----------------------------------------------------------------------------------
  /// What was cut: connections, and bytes of their output that had not left this machine.
  struct Left {
    std::size_t connections = 0;  ///< number of connections
    std::uint64_t bytes = 0;      ///< number of bytes
  };
  /// Tells the watchers, and calls `drained` once, from the loop, when no served connection is
  /// left. Throws std::bad_alloc, before anything has begun, or what a watcher throws.
  void begin(ae::TimePoint hurries_from, std::function<void()> drained);
  /// Aborts the served connections that are left; their handlers learn of it as of a failure.
  Left cut() noexcept;
  /// The Stop that called begin() is gone: begun() is false again, and `drained` is not called.
  void end() noexcept;
  /// Keeps an accept handler until forget(), or until the loop ends.
  void keep(std::shared_ptr<const AcceptHandler> handler);
  void forget() noexcept;  ///< destroys the accept handlers that were kept

 private:
  class End;
  void tell();

  ae::EventLoop& loop_;
  ConnectionSet& connections_;
  bool begun_ = false;
  ae::TimePoint hurries_from_{};
  StopWatcher* watchers_ = nullptr;
  std::function<void()> drained_;  // empty once called
  ae::TimerId timer_ = 0;          // expires when no served connection may be left; 0: none
  std::vector<std::shared_ptr<const AcceptHandler>> kept_;
  std::unique_ptr<End> end_;  // forgets the kept handlers while everything on the loop still works
};

}}  // namespace conn
