// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The RDMA state of one loop: the rdma_cm channel, a Context for each device in use, the registered
// memory, the list of connections with pending work, and the wheel that schedules checks of the
// others. It is a source of the loop:
//
//   process_pending  take completions, tear down ended connections, run due handlers
//   flush            post what the iteration wrote, one chain for each connection
//   arm              request completion events, poll once more, then sleep
//
// Completions and rdma_cm events only record facts; handlers run from the ready list. So pump(),
// which blocking operations use, can record facts for every connection without running handlers.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "ae/event_loop.h"
#include "conn/connection_type.h"
#include "conn/kit/ready_list.h"
#include "conn/rdma/device/cm.h"
#include "conn/rdma/device/removal_watch.h"
#include "conn/rdma/loop/context.h"
#include "conn/rdma/loop/statistics.h"
#include "conn/rdma/loop/users.h"

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
  /// The time of this iteration; inside pump(), the current time.
  ae::TimePoint now() const;
  /// Changes with every iteration, which renews read budgets.
  std::uint64_t turn() const noexcept { return turn_; }
  /// The loop's context for the device `id` is bound to. Throws VerbsError.
  std::shared_ptr<Context> context(const CmId& id, const Settings& settings);
  /// If `id` is bound to a device, librdmacm has opened that device permanently: from now on its
  /// removal is noticed, even if no Context is ever made. Needs a lookup if it is already watched.
  void watch_removal(const CmId& id);
  const std::vector<std::shared_ptr<Context>>& contexts() const noexcept { return contexts_; }
  /// Counters of destroyed contexts, by device, so that statistics never decrease.
  const std::map<std::string, ContextCounters>& counted_before() const noexcept {
    return counted_before_;
  }

  /// Reserves capacity for that many in every list, so that connections need no memory for them
  /// later.
  void make_room(std::size_t connections);
  /// `connection` is about to get a queue pair.
  void add(LoopUser& connection);
  void remove(LoopUser& connection) noexcept;
  /// Calls on_tick() at `due` or a little later.
  void look_at(LoopUser& connection, ae::TimePoint due) noexcept;
  /// pump() must observe its pace_at(), because timers do not run inside pump().
  void keep_pace_of(LoopUser& connection);
  /// It needs memory to send from; on_memory() is called when there may be some.
  void wait_for_memory(LoopUser& connection);
  /// Memory was given back.
  void memory_came_back() noexcept {
    memory_came_back_ = true;
    if (!waiting_for_memory_.empty()) loop_.nudge();
  }
  /// `connection` has something to post in the next flush().
  void want_flush(LoopUser& connection) noexcept;
  /// Queues `connection` for reap(), which disconnects it or tears it down. That must not happen
  /// while completions are being handled.
  void want_reap(LoopUser& connection) noexcept;
  /// Removes `connection` from every list: it has been torn down, or is about to be.
  void forget(LoopUser& connection) noexcept;
  void add(LoopListener& listener) { listeners_.insert(&listener); }
  void remove(LoopListener& listener) noexcept;
  /// A listener wants prepared queue pairs. They are made after a short time without new
  /// connections, a few in each iteration.
  void prepare_soon() noexcept;
  std::size_t prepared() const noexcept;
  void on_prepared_taken() noexcept {
    ++statistics_.prepared_used;
    prepare_soon();
  }
  /// Calls retry_if_down() of each listener in the next iteration.
  void ask_listeners_again() noexcept {
    ask_listeners_ = true;
    loop_.nudge();
  }
  /// If a port is down, queries it periodically until it is up.
  void watch_ports();
  void on_spin_wish(const ae::Spin& spin) noexcept { spin_ = ae::Spin::both(spin_, spin); }

  /// Records facts for every connection until `done` returns true or the deadline; runs no handler.
  void pump(const std::function<bool()>& done, ae::TimePoint deadline);
  /// Takes what has arrived for any connection, without waiting; runs no handler. `most`: all
  /// events of rdma_cm, or those for which the iteration has time left.
  enum class Most { kShare, kAll };
  void catch_up(Most most);
  /// Takes all events of rdma_cm.
  void drain_cm();
  /// System calls that begin and end connections may use a limited part of each iteration, over all
  /// connections, so that hundreds of them do not delay other work. Connections that find no time
  /// left wait in the list of want_reap().
  bool has_share_left() const noexcept;
  /// An expired deadline may be handled: while there is time left, and one in every iteration, so
  /// that a flood cannot postpone the others indefinitely.
  bool may_expire() noexcept {
    return std::exchange(expired_turn_, turn_) != turn_ || has_share_left();
  }
  /// Charges its lifetime to the iteration's time for such system calls.
  class Spending {
   public:
    explicit Spending(LoopState& state) noexcept
        : state_(std::exchange(state.spending_, true) ? nullptr : &state) {
      if (state_ != nullptr) state_->spending_since_ = std::chrono::steady_clock::now();
    }
    ~Spending() {
      if (state_ == nullptr) return;
      state_->spent_ += std::chrono::steady_clock::now() - state_->spending_since_;
      state_->spending_ = false;
    }
    Spending(const Spending&) = delete;
    Spending& operator=(const Spending&) = delete;

   private:
    LoopState* state_;  // null if nested
  };
  /// Frees unused contexts.
  void drop_idle_contexts();
  /// drop_idle_contexts(), and frees memory kept for future connections.
  void give_back_what_is_idle();
  static bool may_go(const std::shared_ptr<Context>& context);
  bool has_lost_context() const noexcept;
  // Called several times in each iteration, and hardly ever true.
  bool has_context_to_clear() const noexcept {
    for (const auto& context : contexts_)
      if (context->lost() || context->has_parked())
        return has_parked_to_release() || has_lost_context();
    return false;
  }

  // ae::Source
  bool has_pending() const override {
    const bool wheel_stands = wheel_timer_ == 0 && wheel_.scheduled() != 0;
    return !ready_.empty() || poll_more_ || !reap_.empty() || wheel_.has_due() || wheel_stands ||
           has_memory_waiters_to_wake() || has_context_to_clear();
  }
  std::size_t process_pending() override;
  void flush() override;
  bool arm() override;
  const ae::Spin* spin() const override;
  bool has_pending_now() override;

 private:
  void on_cm_readable(Most most);
  void take_completions();
  void reap(Most most);
  void release_parked(Most most);
  bool has_parked_to_release() const noexcept;
  void on_device_removed(ibv_context* cm_handle);
  void drop_lost_contexts();
  bool is_watched(std::string_view device) const noexcept;
  void watch_what_librdmacm_opened() noexcept;
  void watch(Context& context);
  void unwatch(Context& context);
  void leave_loop() noexcept;
  void wait_for_descriptors(ae::Duration limit);
  void wake_wheel_at(ae::TimePoint when) noexcept;
  ae::Duration on_wheel_timer();
  void turn_wheel();
  void run_maintenance() noexcept;
  void start_maintenance();
  ae::Duration prepare();
  bool prepare_one();
  bool has_memory_waiters_to_wake() const noexcept {
    return (memory_came_back_ || to_wake_ != 0) && !waiting_for_memory_.empty();
  }
  void wake_memory_waiters();

  ae::EventLoop& loop_;
  const ConnectionType& type_;
  const ae::MadeHere made_here_;
  std::shared_ptr<CmChannel> cm_ = std::make_shared<CmChannel>();
  PagePool pages_;  // outlives the contexts
  std::vector<std::shared_ptr<Context>> contexts_;
  std::vector<std::unique_ptr<RemovalWatch>> removal_watches_;
  ibv_context* removed_ = nullptr;  // librdmacm's handle of the last device removed
  ReadyList ready_{loop_};
  std::unordered_set<LoopListener*> listeners_;
  std::vector<LoopUser*> dirty_, flushing_, reap_, waiting_for_memory_, paced_;
  bool memory_came_back_ = false;
  std::size_t to_wake_ = 0;  // of waiting_for_memory_, since memory was given back
  bool ask_listeners_ = false;
  bool poll_more_ = false;
  bool posted_ = false;  // since the queues were last polled
  std::uint32_t looks_missed_ = 0;
  ae::Duration spent_{};
  ae::TimePoint spending_since_;
  bool spending_ = false;
  bool pumping_ = false;
  std::uint64_t turn_ = 0, expired_turn_ = 0;
  ae::Spin spin_;
  bool maintenance_pending_ = false;
  TickWheel wheel_;
  std::size_t attached_connections_ = 0;  // connections that hold resources of a device
  ae::TimerId wheel_timer_ = 0;
  ae::TimePoint wheel_wakes_{};
  ae::TimerId maintenance_timer_ = 0;  // once a second, while there is something to give back
  ae::TimePoint maintenance_due_{};
  ae::TimerId port_timer_ = 0;     // while a port is down
  ae::TimerId prepare_timer_ = 0;  // while queue pairs are to be prepared or dropped
  ae::TimePoint prepare_at_{}, prepare_by_{};
  LoopStatistics statistics_;
  std::map<std::string, ContextCounters> counted_before_;
};

}}}  // namespace conn::rdma
