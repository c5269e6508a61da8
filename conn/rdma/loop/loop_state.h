// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The RDMA state of one event loop: its rdma_cm channel, and the parts that connections and
// listeners share, each of which has a header of its own. LoopState creates the parts and defines
// the order in which they work in an iteration. It is a Source of the loop:
//
//   process_pending  takes completions, tears down ended connections, runs due handlers
//   flush            posts what the iteration wrote, one chain of requests for each connection
//   arm              requests completion events and polls once more, before the loop sleeps
//
// Completions and rdma_cm events only change the state of connections; user handlers run later,
// from the ready list. So pump(), which blocking operations use, can process events for every
// connection without running handlers.

#include <functional>
#include <memory>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "ae/event_loop.h"
#include "conn/connection_type.h"
#include "conn/kit/ready_list.h"
#include "conn/rdma/config/shared_settings.h"
#include "conn/rdma/device/cm.h"
#include "conn/rdma/loop/cm_events.h"
#include "conn/rdma/loop/device_context.h"
#include "conn/rdma/loop/devices.h"
#include "conn/rdma/loop/due_connections.h"
#include "conn/rdma/loop/iteration_budget.h"
#include "conn/rdma/loop/listeners.h"
#include "conn/rdma/loop/loop_connection.h"
#include "conn/rdma/loop/periodic_cleanup.h"
#include "conn/rdma/loop/preparation.h"
#include "conn/rdma/loop/statistics.h"
#include "conn/rdma/loop/tick_dispatch.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class LoopState final : public ae::LoopLocal, public ae::Source {
 public:
  /// Returns the RDMA state of `loop`, which is created on first use. Throws VerbsError if RDMA is
  /// not available.
  static LoopState& of(ae::EventLoop& loop, const ConnectionType& type);
  /// Returns the RDMA state of `loop`, or null if it has none yet.
  static LoopState* find(ae::EventLoop& loop, const ConnectionType& type);
  LoopState(ae::EventLoop& loop, const ConnectionType& type);
  ~LoopState() override;

  ae::EventLoop& loop() noexcept { return loop_; }
  /// Returns true if this process is a child of fork() and the parent created this object. The
  /// devices, connections and events belong to the parent, and this object no longer uses them.
  bool inherited() const noexcept { return made_here_.inherited(); }
  /// Called by the loop in a child of fork(): removes this object from the loop, which continues
  /// without RDMA.
  void after_fork() noexcept override;
  /// Returns the rdma_cm channel. Other threads hold it, too, while they move ids to it, so it may
  /// outlive this object.
  const std::shared_ptr<CmChannel>& cm() const noexcept { return cm_; }
  ReadyList& ready() noexcept { return ready_; }
  LoopStatistics& statistics() noexcept { return statistics_; }
  IterationBudget& iteration() noexcept { return iteration_; }
  Devices& devices() noexcept { return devices_; }
  LoopListeners& listeners() noexcept { return listeners_; }
  Preparation& preparation() noexcept { return preparation_; }
  SharedSettings& settings() noexcept { return settings_; }
  /// Returns the loop's time of this iteration; during a blocking operation (pump()), the current
  /// time.
  ae::TimePoint now() const { return time_known_ ? now_ : ask_time(); }
  /// Returns the number of this iteration; each iteration has a different one. A connection renews
  /// its read budget when the number has changed.
  std::uint64_t iteration_number() const noexcept { return iteration_.number(); }

  // --- connections for which something is due (DueConnections, TickDispatch) ---------------------
  void make_room(std::size_t connections) { users_.make_room(connections); }
  /// Call it before `connection` gets a queue pair: starts its periodic checks and the periodic
  /// cleanup of resources.
  void add(LoopConnection& connection);
  void remove(LoopConnection& connection) noexcept;
  /// Removes `connection` from every list, including that of connections to disconnect or tear
  /// down. Call it when the connection is torn down.
  void forget(LoopConnection& connection) noexcept;
  /// Schedules the connection's next periodic check, a call of on_tick(), at `due` or a little
  /// later.
  void look_at(LoopConnection& connection, ae::TimePoint due) noexcept {
    wheel_.look_at(connection, due);
  }
  /// Makes pump() post the due requests of `connection` at the time pace_at(), because timers do
  /// not run in a blocking operation.
  void keep_pace_of(LoopConnection& connection) { users_.keep_pace_of(connection); }
  /// Makes `connection` wait for memory for data that it must send: its on_memory() is called when
  /// memory may be available.
  void wait_for_memory(LoopConnection& connection) { users_.wait_for_memory(connection); }
  /// Makes connections that wait for memory try again. Call it when memory was released.
  void memory_came_back() noexcept {
    if (users_.memory_came_back()) loop_.nudge();
  }
  /// Makes the next flush() post the due work requests of `connection`.
  void want_flush(LoopConnection& connection) noexcept {
    if (users_.add_to_flush(connection)) loop_.nudge();
  }
  /// Schedules a call of the connection's reap(), which disconnects it or tears it down. This is
  /// deferred because it must not happen while completions are being handled.
  void want_reap(LoopConnection& connection) noexcept {
    if (users_.add_to_reap(connection)) loop_.nudge();
  }
  void on_spin_wish(const ae::Spin& spin) noexcept { spin_ = ae::Spin::both(spin_, spin); }

  /// For blocking operations: processes events of all connections, without running handlers of the
  /// user, until `done` returns true or `deadline` has passed. Sleeps while there are no events.
  void pump(const std::function<bool()>& done, ae::TimePoint deadline);
  /// Returns true while pump() is running. Until it has returned, the loop runs no timers and no
  /// functions that were posted to it.
  bool pumping() const noexcept { return pumping_; }
  /// Processes the completions and rdma_cm events that have arrived for all connections, without
  /// blocking and without running handlers. `most`: kAll takes up to 64 rdma_cm events; kShare only
  /// as many as the iteration has time for.
  void catch_up(IterationBudget::Most most);
  /// Takes all pending events of the loop's rdma_cm channel and handles them.
  void drain_cm();

  // --- overrides of ae::Source ---
  bool has_pending() const override {
    return !ready_.empty() || poll_more_ || users_.has_to_reap() || wheel_.must_not_sleep() ||
           users_.has_to_wake() || devices_.has_to_clear();
  }
  std::size_t process_pending() override;
  void flush() override;
  bool arm() override;
  const ae::Spin* spin() const override;
  bool has_pending_now() override;

 private:
  /// While an object of this class exists, now() queries the loop's time only once, to save calls
  /// (except inside pump()). No object of this class may exist while handlers of the user run,
  /// because a handler may run the loop itself (a nested EpollLoop::dispatch()), which changes the
  /// time.
  class SameTime {
   public:
    explicit SameTime(LoopState& state) noexcept : state_(state) { state_.keeps_time_ = true; }
    SameTime(const SameTime&) = delete;
    SameTime& operator=(const SameTime&) = delete;
    ~SameTime() { state_.keeps_time_ = state_.time_known_ = false; }

   private:
    LoopState& state_;
  };
  ae::TimePoint ask_time() const;
  void reap(IterationBudget::Most most);
  void leave_loop() noexcept;

  ae::EventLoop& loop_;
  const ConnectionType& type_;
  const ae::MadeHere made_here_;
  LoopStatistics statistics_;
  IterationBudget iteration_;
  std::shared_ptr<CmChannel> cm_ = std::make_shared<CmChannel>();
  LoopListeners listeners_{loop_};
  Devices devices_{loop_, *cm_, listeners_};
  ReadyList ready_{loop_};
  DueConnections users_;
  TickDispatch wheel_{loop_};
  PeriodicCleanup maintenance_{loop_, devices_, users_, wheel_, listeners_};
  Preparation preparation_{loop_, devices_, listeners_, iteration_, maintenance_};
  CmEvents cm_events_{*cm_, devices_, listeners_, iteration_, statistics_.cm_events};
  SharedSettings settings_;
  ae::Spin spin_;
  bool poll_more_ = false;  // true if the last poll may have left completions in a queue
  bool posted_ = false;     // true if requests were posted since arm() last polled
  bool pumping_ = false;
  // keeps_time_: an object of class SameTime exists, so that now() may store the time in now_.
  // time_known_: now() has stored it.
  bool keeps_time_ = false;
  mutable bool time_known_ = false;
  mutable ae::TimePoint now_{};
  std::uint32_t looks_missed_ = 0;
};

}}}  // namespace conn::rdma
