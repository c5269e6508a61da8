// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The RDMA state of one loop: its rdma_cm channel, and the parts that connections and listeners
// share, each with a header of its own. LoopState creates them and says in which order they work in
// an iteration. It is a source of the loop:
//
//   process_pending  take completions, tear down ended connections, run due handlers
//   flush            post what the iteration wrote, one chain for each connection
//   arm              request completion events, poll once more, then sleep
//
// Completions and rdma_cm events only record facts; handlers run from the ready list. So pump(),
// which blocking operations use, can record facts for every connection without running handlers.

#include <functional>
#include <memory>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "ae/event_loop.h"
#include "conn/connection_type.h"
#include "conn/kit/ready_list.h"
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
  /// The state of `loop`, created on first use. Throws VerbsError where there is no RDMA.
  static LoopState& of(ae::EventLoop& loop, const ConnectionType& type);
  /// Null if there is none yet.
  static LoopState* find(ae::EventLoop& loop, const ConnectionType& type);
  LoopState(ae::EventLoop& loop, const ConnectionType& type);
  ~LoopState() override;

  ae::EventLoop& loop() noexcept { return loop_; }
  /// This process is a child of fork(): devices, connections and events belong to the parent, and
  /// this object does not touch them any more.
  bool inherited() const noexcept { return made_here_.inherited(); }
  /// Removes this object from the loop, which continues without it.
  void after_fork() noexcept override;
  CmChannel& cm() noexcept { return *cm_; }
  /// For ids that other threads send here; may outlive this object.
  const std::shared_ptr<CmChannel>& shared_cm() const noexcept { return cm_; }
  ReadyList& ready() noexcept { return ready_; }
  LoopStatistics& statistics() noexcept { return statistics_; }
  IterationBudget& iteration() noexcept { return iteration_; }
  Devices& devices() noexcept { return devices_; }
  LoopListeners& listeners() noexcept { return listeners_; }
  Preparation& preparation() noexcept { return preparation_; }
  /// The time of this iteration; inside pump(), the current time.
  ae::TimePoint now() const;
  /// Changes with every iteration, which renews read budgets.
  std::uint64_t turn() const noexcept { return iteration_.number(); }

  // --- connections: see DueConnections and TickDispatch ---
  void make_room(std::size_t connections) { users_.make_room(connections); }
  /// `connection` is about to get a queue pair.
  void add(LoopConnection& connection);
  void remove(LoopConnection& connection) noexcept;
  /// Removes `connection` from every list: it has been torn down, or is about to be.
  void forget(LoopConnection& connection) noexcept;
  /// Calls on_tick() at `due` or a little later.
  void look_at(LoopConnection& connection, ae::TimePoint due) noexcept {
    wheel_.look_at(connection, due);
  }
  /// pump() must observe its pace_at(), because timers do not run inside pump().
  void keep_pace_of(LoopConnection& connection) { users_.keep_pace_of(connection); }
  /// It needs memory to send from; on_memory() is called when there may be some.
  void wait_for_memory(LoopConnection& connection) { users_.wait_for_memory(connection); }
  /// Memory was given back.
  void memory_came_back() noexcept {
    if (users_.memory_came_back()) loop_.nudge();
  }
  /// `connection` has something to post in the next flush().
  void want_flush(LoopConnection& connection) noexcept {
    if (users_.add_to_flush(connection)) loop_.nudge();
  }
  /// Queues `connection` for reap(), which disconnects it or tears it down. That must not happen
  /// while completions are being handled.
  void want_reap(LoopConnection& connection) noexcept {
    if (users_.add_to_reap(connection)) loop_.nudge();
  }
  void on_spin_wish(const ae::Spin& spin) noexcept { spin_ = ae::Spin::both(spin_, spin); }

  /// Records facts for every connection until `done` returns true or the deadline; runs no handler.
  void pump(const std::function<bool()>& done, ae::TimePoint deadline);
  /// Takes what has arrived for any connection, without waiting; runs no handler. `most`: all
  /// events of rdma_cm, or those for which the iteration has time left.
  void catch_up(IterationBudget::Most most);
  /// Takes all events of rdma_cm.
  void drain_cm();

  // ae::Source
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
  void reap(IterationBudget::Most most);
  void leave_loop() noexcept;

  ae::EventLoop& loop_;
  const ConnectionType& type_;
  const ae::MadeHere made_here_;
  LoopStatistics statistics_;
  IterationBudget iteration_;
  std::shared_ptr<CmChannel> cm_ = std::make_shared<CmChannel>();
  Devices devices_{loop_, *cm_};
  ReadyList ready_{loop_};
  LoopListeners listeners_{loop_};
  DueConnections users_;
  TickDispatch wheel_{loop_};
  PeriodicCleanup maintenance_{loop_, devices_, users_, wheel_, listeners_};
  Preparation preparation_{loop_, devices_, listeners_, iteration_, maintenance_};
  CmEvents cm_events_{*cm_, devices_, listeners_, iteration_, statistics_.cm_events};
  ae::Spin spin_;
  bool poll_more_ = false;  // the last poll left completions
  bool posted_ = false;     // since the queues were last polled
  bool pumping_ = false;
  std::uint32_t looks_missed_ = 0;
};

}}}  // namespace conn::rdma
