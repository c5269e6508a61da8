// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// ReadyList: level-triggered readiness without descriptors, as a list of connections that have work
// to do now. A transport keeps one list for each loop. The loop serves the list in each iteration,
// as an ae::Source or a part of one, and does not sleep while there are items in it.

#include <cstddef>

#include "ae/abi.h"
#include "ae/event_loop.h"

namespace conn { inline namespace AECONN_ABI {

class ReadyList;

/// One connection's entry in a ReadyList. The destructor removes it from the list, so that
/// connections may be closed at any time. An item is in at most one list, and only once.
class AECONN_API ReadyItem {
 public:
  ReadyItem() = default;
  ReadyItem(const ReadyItem&) = delete;
  ReadyItem& operator=(const ReadyItem&) = delete;
  /// Returns whether this item is in a list now.
  bool queued() const noexcept { return next_ != nullptr; }
  /// Removes this item from its list; no effect if it is in no list.
  void unqueue() noexcept {
    if (next_ == nullptr) return;
    prev_->next_ = next_;
    next_->prev_ = prev_;
    prev_ = next_ = nullptr;
  }

 protected:
  virtual ~ReadyItem() { unqueue(); }
  /// Runs the handlers of the connection that are due. Returns how many ran. The item is no longer
  /// in the list, and may be queued again.
  virtual std::size_t run_ready() = 0;

 private:
  friend class ReadyList;
  struct Sentinel {};
  explicit ReadyItem(Sentinel) : prev_(this), next_(this) {}
  ReadyItem* prev_ = nullptr;
  ReadyItem* next_ = nullptr;
};

/// A list of connections with work to do, for use on the loop's thread. The loop serves the list
/// between EventLoop::add_source() and remove_source(), which the list's owner must call.
class AECONN_API ReadyList : public ae::Source {
 public:
  /// Creates an empty list that `loop` serves. The loop must outlive the list.
  explicit ReadyList(ae::EventLoop& loop) : ReadyList(loop, *this) {}
  /// Creates an empty list that `server`, a source of `loop`, serves. The source may rest
  /// (Source::rest()) while the list is empty: push() wakes it. Both must outlive the list.
  ReadyList(ae::EventLoop& loop, ae::Source& server) : loop_(loop), server_(server) {}
  ~ReadyList() override;
  /// Queues an item; no effect if it is already queued. If the loop runs inside the event loop of a
  /// host program, which may be asleep, wakes it (EventLoop::nudge()).
  void push(ReadyItem& item) noexcept {
    if (item.queued()) return;
    append(waiting_, item);
    server_.wake();
    loop_.nudge();
  }
  /// Returns whether no item waits in this list.
  bool empty() const noexcept { return waiting_.alone() && serving_.alone(); }
  ae::EventLoop& loop() const noexcept { return loop_; }  ///< the event loop that serves this list

  bool has_pending() const override { return !empty(); }
  /// Serves the items that are in the list at the start of the call: at least one, and more while
  /// the iteration has time (EventLoop::has_time()). The remaining items are served first in the
  /// next iteration. An item that queues itself again waits for the next call. Returns how many
  /// handlers ran.
  std::size_t process_pending() override { return empty() ? 0 : process_some(); }
  /// Serves all items that are in the list at the start of the call, however long that takes. For
  /// items that run no handlers, such as pending output.
  void process_all() {
    if (!empty()) process_every();
  }

 private:
  struct Head final : ReadyItem {
    Head() : ReadyItem(Sentinel{}) {}
    bool alone() const noexcept { return next_ == this; }
    bool has_one() const noexcept { return next_ == prev_ && next_ != this; }
    std::size_t run_ready() override { return 0; }
  };
  std::size_t process_some();
  void process_every();
  void begin_serving() noexcept;
  static std::size_t run_first(Head& list);
  static void append(Head& list, ReadyItem& item) noexcept {
    item.prev_ = list.prev_;
    item.next_ = &list;
    list.prev_->next_ = &item;
    list.prev_ = &item;
  }
  static void unqueue_all(Head& list) noexcept;

  ae::EventLoop& loop_;
  ae::Source& server_;
  Head waiting_;  // items that the next call of process_pending() or process_all() will serve
  Head serving_;  // items that the current call still has to serve
};

}}  // namespace conn
