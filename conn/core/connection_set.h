// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Per-loop state of conn/: the loop's live connections, so that the end of the loop reaches them,
// and the counters of each type. Used by the base and by transports; host programs do not need it.

#include <map>
#include <memory>
#include <optional>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/connection_type.h"

namespace conn { inline namespace AECONN_ABI {

class Connection;
class ConnectionCore;
class DueToClose;
class InPlacePool;
class ReadyList;

/// Notified once, just before its loop ends, while everything on the loop still works.
class AECONN_API LoopEndWatcher {
 public:
  LoopEndWatcher() = default;
  LoopEndWatcher(const LoopEndWatcher&) = delete;
  LoopEndWatcher& operator=(const LoopEndWatcher&) = delete;
  /// On the loop's thread. The watcher is already out of the set, and may destroy itself or others.
  virtual void on_loop_end() noexcept = 0;
  void stop_watching() noexcept;  ///< cancels the notification; the destructor does so too

 protected:
  virtual ~LoopEndWatcher() { stop_watching(); }

 private:
  friend class ConnectionSet;
  LoopEndWatcher* next_ = nullptr;
  LoopEndWatcher** link_ = nullptr;
};

/// One for each loop, which creates and owns it. On the loop's thread.
class AECONN_API ConnectionSet final : public ae::LoopLocal {
 public:
  /// The set of `loop`, created on first use; throws std::bad_alloc in that case. Per-loop state
  /// that uses the set in its destructor must call of() before it is created itself, so that the
  /// set outlives it.
  static ConnectionSet& of(ae::EventLoop& loop);
  ConnectionSet();  ///< use of() instead
  ~ConnectionSet() override;
  /// In a child of fork(): pending output of inherited connections is left to the parent. Inherited
  /// connections that were already closed end here.
  void after_fork() noexcept override;

  /// Non-owning, until the watcher is notified or destroyed; it must not already be in a set.
  void add(LoopEndWatcher& watcher) noexcept;
  /// Notifies the watchers. The destructor of a transport's per-loop state must call it first: the
  /// state or the set, whichever is destroyed first, notifies the watchers.
  void loop_ends() noexcept;
  /// Called when the loop ends: output accepted by write() may still leave, for the time of option
  /// end-linger, on all connections of all types concurrently, except those that a child of fork()
  /// inherited. Only the first call has an effect.
  void drain() noexcept;
  /// Index of this loop in its listener group, from 0; used to distribute resources over loops. Not
  /// set if the loop is in no group; with several groups, the value is that of the last.
  std::optional<std::size_t> index_in_group;
  /// The address is valid as long as the loop lives.
  LoopCounters& counters(const ConnectionType& type) { return kinds_[&type].counters; }

  /// Drains all connections, then ends those of `type` and those over it (Transport::is_over()) as
  /// the end of the loop does. For a transport whose per-loop state may be destroyed before this
  /// set: the loop destroys its locals in reverse order of creation.
  void abandon(const ConnectionType& type) noexcept;

 private:
  friend class ConnectionCore;
  friend class Connection;
  struct Kind {  // state of one type
    LoopCounters counters;
    ConnectionCore* head = nullptr;
  };
  void add(ConnectionCore& connection);
  /// Abandons the connections of one type. Returns false if there were none.
  static bool abandon(Kind& kind) noexcept;
  /// State for in-place reading and sending, created on first use. Throws std::bad_alloc.
  InPlacePool& in_place(ae::EventLoop& loop);
  /// The list of close handlers to run, created on first use. Throws std::bad_alloc.
  ReadyList& due_to_close(ae::EventLoop& loop);
  ReadyList* due_to_close() noexcept;  ///< null if not created yet
  static bool drain(ConnectionCore& connection, ae::TimePoint began, ae::TimePoint until) noexcept;

  LoopEndWatcher* watchers_ = nullptr;
  bool drained_ = false;
  std::unique_ptr<InPlacePool> in_place_;
  std::unique_ptr<DueToClose> due_to_close_;
  std::map<const ConnectionType*, Kind> kinds_;  // a map keeps addresses stable
};

}}  // namespace conn
