// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Level-triggered readiness without descriptors: a list of connections that have work to do now. A
// transport keeps one list for each loop; the loop serves it as a source and does not sleep while
// it is not empty.

#include <cstddef>

#include "ae/abi.h"
#include "ae/event_loop.h"

namespace conn { inline namespace AECONN_ABI {

class ReadyList;

/// List hook of one connection. Its destructor removes it from the list, so connections may be
/// closed at any time. It can be in at most one list, once.
class AECONN_API ReadyItem {
 public:
  ReadyItem() = default;
  ReadyItem(const ReadyItem&) = delete;
  ReadyItem& operator=(const ReadyItem&) = delete;
  bool queued() const noexcept { return next_ != nullptr; }  ///< whether it is in a list
  void unqueue() noexcept;                                   ///< no-op if it is not in a list

 protected:
  virtual ~ReadyItem() { unqueue(); }
  /// Runs the handlers that are due, and returns how many ran. The item may queue itself again.
  virtual std::size_t run_ready() = 0;

 private:
  friend class ReadyList;
  struct Sentinel {};
  explicit ReadyItem(Sentinel) : prev_(this), next_(this) {}
  ReadyItem* prev_ = nullptr;
  ReadyItem* next_ = nullptr;
};

/// Items with work to do. On the loop's thread. The loop serves the list between add_source() and
/// remove_source(), which the list's owner must call.
class AECONN_API ReadyList : public ae::Source {
 public:
  /// Creates an empty list. The loop must outlive it.
  explicit ReadyList(ae::EventLoop& loop) : loop_(loop) {}
  ~ReadyList() override;
  /// No-op if the item is already queued. Wakes a loop that runs below a host's loop and sleeps.
  void push(ReadyItem& item) noexcept;
  /// Whether no item is queued.
  bool empty() const noexcept { return waiting_.alone() && turn_.alone(); }
  ae::EventLoop& loop() const noexcept { return loop_; }  ///< the loop it was made for

  bool has_pending() const override { return !empty(); }
  /// Serves the items that are in the list at entry: at least one, and more while the iteration has
  /// time (EventLoop::has_time()); the rest are served first in the next iteration. An item that
  /// queues itself again waits for the next call.
  std::size_t process_pending() override;
  /// The same for all items: for items that run no handlers, such as pending output.
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
  Head waiting_;  // to be served by the next call
  Head turn_;     // remaining items of the current call
};

}}  // namespace conn
