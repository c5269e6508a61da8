// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What conn/ keeps for one loop: its live connections, so that the loop's end reaches them, and the
// counters of each type. Used by the base and by transports; host programs do not need it.

#include <map>
#include <memory>
#include <optional>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/connection.h"
#include "conn/connection_type.h"

namespace conn { inline namespace AECONN_ABI {

class DueToClose;
class InPlacePool;
class ReadyList;

/// Is told, once, that its loop is about to go: everything on the loop still works.
class AECONN_API LoopEndWatcher {
 public:
  LoopEndWatcher() = default;
  LoopEndWatcher(const LoopEndWatcher&) = delete;
  LoopEndWatcher& operator=(const LoopEndWatcher&) = delete;
  /// On the loop's thread. The watcher is out of the set by then, and may destroy itself or others.
  virtual void on_loop_end() noexcept = 0;
  void stop_watching() noexcept;  ///< is told nothing any more; the destructor does it

 protected:
  virtual ~LoopEndWatcher() { stop_watching(); }

 private:
  friend class ConnectionSet;
  LoopEndWatcher* next_ = nullptr;
  LoopEndWatcher** link_ = nullptr;
};

/// One for each loop, made and owned by it. On the loop's thread.
class AECONN_API ConnectionSet final : public ae::LoopLocal {
 public:
  /// The set of `loop`, made at first use. Throws std::bad_alloc then. Per-loop state that uses it
  /// at its own end asks for it before it is made itself.
  static ConnectionSet& of(ae::EventLoop& loop);
  ConnectionSet();  ///< by of() alone
  ~ConnectionSet() override;
  /// What the parent's connections still have to send is the parent's to send: those that were
  /// closed end here.
  void after_fork() noexcept override;

  /// Borrowed, until it is told or destroyed. It is to be in no set.
  void add(LoopEndWatcher& watcher) noexcept;
  /// Tells the watchers. For a transport's per-loop state, first of all when that goes: whichever
  /// goes first tells them.
  void loop_ends() noexcept;
  /// The loop ends: what write() took gets the time of its option end-linger to leave, all
  /// connections of all types at once, but for those that a child of fork() has from its parent.
  /// Only the first call does anything.
  void drain() noexcept;
  /// Which of a listener group's loops this one is, from 0; what loops share out follows it. Not
  /// set: it is in none. With several groups the last one's.
  std::optional<std::size_t> index_in_group;
  /// The address stays valid as long as the loop.
  LoopCounters& counters(const ConnectionType& type) { return kinds_[&type].counters; }

  /// Ends every connection of `type`, as the loop's end would, and drains all of them before. For a
  /// transport whose own per-loop state may go before this set does: the loop destroys its locals
  /// in reverse order of creation.
  void abandon(const ConnectionType& type) noexcept;

 private:
  friend class Connection;
  struct Kind {  // of one type
    LoopCounters counters;
    Connection* head = nullptr;
  };
  void add(Connection& connection);
  /// Abandons the connections of one type. False: there were none.
  static bool abandon(Kind& kind) noexcept;
  /// For bytes that are read and sent in place; made at first use. Throws std::bad_alloc.
  InPlacePool& in_place(ae::EventLoop& loop);
  /// Close handlers to run; made at first use. Throws std::bad_alloc.
  ReadyList& due_to_close(ae::EventLoop& loop);
  ReadyList* due_to_close() noexcept;  ///< null: nobody has asked for it
  static bool drain(Connection& connection, ae::TimePoint began, ae::TimePoint until) noexcept;

  LoopEndWatcher* watchers_ = nullptr;
  bool drained_ = false;
  std::unique_ptr<InPlacePool> in_place_;
  std::unique_ptr<DueToClose> due_to_close_;
  std::map<const ConnectionType*, Kind> kinds_;  // a map, for its stable addresses
};

}}  // namespace conn
