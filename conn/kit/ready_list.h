// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Level-triggered readiness that no descriptor announces: connections with something to do now.
// A transport keeps one list for each loop; the loop serves it as a source and does not sleep
// while it is not empty.

#include <cstddef>

#include "ae/abi.h"
#include "ae/event_loop.h"

namespace conn { inline namespace AECONN_ABI {

class ReadyList;

/// The hook of one connection. Leaves its list when destroyed, so anything may be closed at any
/// time, and standing in the list twice is impossible.
class AECONN_API ReadyItem {
 public:
  ReadyItem() = default;
  ReadyItem(const ReadyItem&) = delete;
  ReadyItem& operator=(const ReadyItem&) = delete;
  bool queued() const noexcept { return next_ != nullptr; }  ///< whether it stands in a list
  void unqueue() noexcept;                                   ///< no-op if it does not

 protected:
  virtual ~ReadyItem() { unqueue(); }
  /// Runs the handlers that are due. Returns how many ran. May queue itself again.
  virtual std::size_t run_ready() = 0;

 private:
  friend class ReadyList;
  struct Sentinel {};
  explicit ReadyItem(Sentinel) : prev_(this), next_(this) {}
  ReadyItem* prev_ = nullptr;
  ReadyItem* next_ = nullptr;
};

/// Those with something to do. On the loop's thread. The loop serves it between add_source() and
/// remove_source(), which are its owner's to call.
class AECONN_API ReadyList : public ae::Source {
 public:
  /// Empty. The loop has to outlive it.
  explicit ReadyList(ae::EventLoop& loop) : loop_(loop) {}
  ~ReadyList() override;
  /// No-op if it is queued already. Wakes a loop that sleeps below a host's.
  void push(ReadyItem& item) noexcept;
  /// Whether nothing stands in it.
  bool empty() const noexcept { return waiting_.alone() && turn_.alone(); }
  ae::EventLoop& loop() const noexcept { return loop_; }  ///< that it was made for

  bool has_pending() const override { return !empty(); }
  /// Serves those that stand in the list at entry, one at least, as long as the iteration has time
  /// (EventLoop::has_time()): the others come first in the next. An item that queues itself again
  /// waits for the next turn.
  std::size_t process_pending() override;
  /// The same, all of them: for items that run no handler, as for what has been written.
  void process_all();

 private:
  struct Head final : ReadyItem {
    Head() : ReadyItem(Sentinel{}) {}
    bool alone() const noexcept { return next_ == this; }
    std::size_t run_ready() override { return 0; }
  };
  void begin_turn() noexcept;
  std::size_t run_first();
  static void append(Head& list, ReadyItem& item) noexcept;
  static void unqueue_all(Head& list) noexcept;

  ae::EventLoop& loop_;
  Head waiting_;  // for the next turn
  Head turn_;     // what is left of this turn
};

}}  // namespace conn
