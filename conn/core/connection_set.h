// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// ConnectionSet: what the connection layer (folder conn/) keeps for one loop. It lists the loop's
// connections, so that they can be closed when the loop is destroyed, and has the counters of each
// transport. Used by the core and by transports; host programs do not need it.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/connection_type.h"
#include "conn/core/arrival_source.h"
#include "conn/error.h"

namespace conn { inline namespace AECONN_ABI {

class Connection;
class ConnectionCore;
class ReadyHandlers;
class InPlacePool;
class ReadyList;
class SetEntry;

/// An object that is notified once, just before the event loop ends, while everything on this loop
/// still works.
class AECONN_API LoopEndWatcher {
 public:
  LoopEndWatcher() = default;
  LoopEndWatcher(const LoopEndWatcher&) = delete;
  LoopEndWatcher& operator=(const LoopEndWatcher&) = delete;
  /// Called on the loop's thread, just before the loop ends. The watcher is no longer in the set,
  /// and may destroy itself or others.
  virtual void on_loop_end() noexcept = 0;
  /// Cancels the notification about the end of the loop, as the destructor does.
  void stop_watching() noexcept;

 protected:
  virtual ~LoopEndWatcher() { stop_watching(); }

 private:
  friend class ConnectionSet;
  LoopEndWatcher* next_ = nullptr;
  LoopEndWatcher** link_ = nullptr;
};

/// The connection layer's state for one event loop, which owns this object. To be used on the
/// loop's thread.
class AECONN_API ConnectionSet final : public ae::LoopLocal {
 public:
  /// Returns the set of `loop`. Creates it on first use, and may then throw std::bad_alloc. If the
  /// destructor of other per-loop state uses the set, call of() before that state is created, so
  /// that the set outlives it.
  static ConnectionSet& of(ae::EventLoop& loop);
  ConnectionSet();  ///< called by ConnectionSet::of(); other code calls of()
  ~ConnectionSet() override;
  /// In a child of fork(): leaves the pending output of inherited connections to the parent.
  /// Inherited connections that the program had already closed end here.
  void after_fork() noexcept override;

  /// Adds a watcher, without owning it, until it is notified or destroyed. The watcher must not be
  /// in any ConnectionSet.
  void add(LoopEndWatcher& watcher) noexcept;
  /// Adds a watcher like add(), but it is notified after all others. For listeners: other watchers
  /// may, when they are notified, still move a listener to another loop, or take its pending
  /// connections.
  void add_last(LoopEndWatcher& watcher) noexcept;
  /// Notifies the LoopEndWatchers of this set that the loop ends. The destructor of a transport's
  /// state of the loop must call it first: they use that state, which may go before this set does.
  void loop_ends() noexcept;
  /// Adds an object that accepts connections on this loop, without owning it, until it leaves the
  /// list or is destroyed. It must not be in any list.
  void add(ArrivalSource& source) noexcept;
  /// Calls accept_arrived() once for each ArrivalSource of the list, beginning with the one added
  /// last. Returns the highest of their results; kWaits if a handler that this function runs calls
  /// it again. Throws the exceptions of accept handlers.
  ArrivalSource::Left accept_arrived();
  /// Calls begin_accepting() of each ArrivalSource of the list.
  void begin_accepting() noexcept;
  /// Called when the loop ends: sends the output that write() has accepted, and blocks for at most
  /// the time of option end-linger. Serves all connections of all types together, except those that
  /// a child of fork() has inherited. Only the first call has an effect.
  void drain() noexcept;
  /// Returns the list of the handlers that are due on `loop`, the loop of this set, and that belong
  /// to no transport's list: close handlers, accept handlers, and connect handlers of attempts that
  /// failed inside connect(). Creates the list on first use, and may then throw std::bad_alloc.
  ReadyList& ready(ae::EventLoop& loop);
  /// Index of this loop in its listener group, from 0, by which resources are distributed over the
  /// loops. No value if the loop is in no group. If it is in several groups, the value is that of
  /// the last.
  std::optional<std::size_t> index_in_group;
  /// Returns the counters of the connections of `type` on this loop. The reference stays valid as
  /// long as the loop exists.
  LoopCounters& counters(const ConnectionType& type) { return kinds_[&type].counters; }

  // Served connections are those that a peer opened: accepted, or adopted. They count from the
  // beginning of their set-up until they are destroyed, so a connection that the program has closed
  // still counts while it delivers its output.

  /// Returns the number of served connections on this loop.
  std::size_t served() const noexcept { return served_; }
  /// Sets the function that is called whenever served() becomes 0; null removes it. It must not
  /// throw, nor use connections.
  void when_none_served(std::function<void()> none) noexcept { none_served_ = std::move(none); }
  /// Aborts all served connections for the reason `why`, except those that a listener still sets
  /// up. Their peers see the same as after Connection::abort(); for the program each connection has
  /// failed, and the program closes it. Adds their number to `connections`, and to `bytes` the
  /// output that had not left this machine, as far as it is known: bytes that the transport has not
  /// accepted yet, and those in the kernel's send buffer of a socket.
  void cut_served(const Failure& why, std::size_t& connections, std::uint64_t& bytes) noexcept;

  /// Calls drain(), then ends the connections of `type`, and those that may use Carriers of `type`
  /// (Transport::is_over()), as the end of the loop does. For a transport whose per-loop state may
  /// be destroyed before this set: the loop destroys such objects in reverse order of creation.
  void abandon(const ConnectionType& type) noexcept;

 private:
  friend class ConnectionCore;
  friend class Connection;
  struct Kind {  // the counters and the connections of one type on this loop
    LoopCounters counters;
    SetEntry* head = nullptr;
  };
  void add(ConnectionCore& connection);
  /// Ends all connections of one type, because the event loop ends. Returns false if there were
  /// none.
  static bool abandon(Kind& kind) noexcept;
  /// Returns the loop's pool of InPlace objects, which contain data read ahead and pending output.
  /// Creates the pool on first use, and may then throw std::bad_alloc.
  InPlacePool& in_place(ae::EventLoop& loop);
  /// Returns the list of ready(loop); null if that list has not been created yet.
  ReadyList* ready() noexcept;
  static bool drain(ConnectionCore& connection, ae::TimePoint began, ae::TimePoint until) noexcept;

  void enter_served() noexcept { ++served_; }
  void leave_served() noexcept {
    if (--served_ == 0 && none_served_) none_served_();
  }

  LoopEndWatcher* watchers_ = nullptr;
  std::size_t served_ = 0;
  std::function<void()> none_served_;
  bool drained_ = false;
  std::unique_ptr<InPlacePool> in_place_;
  std::unique_ptr<ReadyHandlers> ready_;
  // A map, because counters() returns references that must stay valid.
  std::map<const ConnectionType*, Kind> kinds_;
  ArrivalSource* sources_ = nullptr;
  std::uint64_t round_ = 0;  // number of calls of accept_arrived()
  bool accepting_ = false;   // whether accept_arrived() is executing
};

}}  // namespace conn
