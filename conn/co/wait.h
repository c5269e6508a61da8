// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Waiting for something inside the process: an event, or space in a queue. Waits are linked into a
// list in the order in which they began. The links are members of the waits, so that waiting
// allocates no memory. Waking a wait does not run its task: the loop resumes the tasks later, in
// the order in which they were woken.

#include <coroutine>
#include <cstddef>
#include <memory>
#include <utility>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/co/result.h"
#include "conn/co/running.h"
#include "conn/co/timed.h"
#include "conn/kit/ready_list.h"

namespace conn { inline namespace AECONN_ABI { namespace co::detail {

/// A loop's list of items to run soon, in the order in which they were added. Items that are left
/// when the loop ends are not run.
class ResumeQueue {
 public:
  /// Returns the one ResumeQueue object of `loop`. Throws std::bad_alloc, only at the first call
  /// for a loop.
  static std::shared_ptr<ResumeQueue> of(ae::EventLoop& loop) {
    static const char key = 0;
    std::unique_ptr<ae::LoopLocal>& slot = loop.local(&key);
    if (!slot) slot = std::make_unique<InLoop>(loop);
    return static_cast<InLoop&>(*slot).resume_queue;
  }
  explicit ResumeQueue(ae::EventLoop& loop) : list_(loop) {}

  void add(ReadyItem& item) noexcept {
    if (open_) list_.push(item);
  }
  ae::EventLoop& loop() const noexcept { return list_.loop(); }

 private:
  struct InLoop final : ae::LoopLocal {
    explicit InLoop(ae::EventLoop& its) : resume_queue(std::make_shared<ResumeQueue>(its)) {
      its.add_source(resume_queue->list_);
    }
    InLoop(const InLoop&) = delete;
    InLoop& operator=(const InLoop&) = delete;
    ~InLoop() override {
      resume_queue->loop().remove_source(resume_queue->list_);
      resume_queue->open_ = false;
    }
    const std::shared_ptr<ResumeQueue> resume_queue;
  };

  ReadyList list_;
  bool open_ = true;
};

class WaitList;

/// Base of operations that wait for something inside the process. A Wait is in a WaitList from the
/// beginning of the wait until it is woken, its time-out expires, or it is destroyed.
class Wait : public Timed, private ReadyItem {
 public:
  /// Moves the operation. It may be moved only before the wait begins.
  Wait(Wait&& other) noexcept : Timed(std::move(other)), list_(other.list_) {}
  Wait& operator=(Wait&&) = delete;
  template <class Awaiting>
  void await_suspend(std::coroutine_handle<Awaiting> awaiting) {
    wait_in_list(Waiter(awaiting));
  }

 protected:
  inline Wait(WaitList& list, ae::Duration limit) noexcept;
  ~Wait() override { leave(); }
  /// Returns whether the condition that this operation waits for has occurred; false after a
  /// time-out.
  bool woken() const noexcept { return woken_; }
  void be_woken() noexcept { woken_ = true; }
  /// Returns whether the WaitList still exists; false if the event or queue that it belongs to was
  /// destroyed during the wait.
  bool list_is_there() const noexcept { return list_ != nullptr; }

 private:
  friend class WaitList;
  struct Ends {
    Wait* first = nullptr;
    Wait* last = nullptr;
    std::size_t count = 0;
  };
  void enter(Ends& list) noexcept {
    previous_ = list.last;
    next_ = nullptr;
    (list.last != nullptr ? list.last->next_ : list.first) = this;
    list.last = this;
    ++list.count;
    in_ = &list;
  }
  void leave() noexcept {
    if (in_ == nullptr) return;
    (previous_ != nullptr ? previous_->next_ : in_->first) = next_;
    (next_ != nullptr ? next_->previous_ : in_->last) = previous_;
    --in_->count;
    in_ = nullptr;
  }
  std::size_t run_ready() override {
    finish();
    return 1;
  }
  void on_limit() noexcept override {
    unqueue();
    if (!woken_) leave();
  }
  inline void wait_in_list(Waiter waiter);

  WaitList* list_;
  Ends* in_ = nullptr;
  Wait* previous_ = nullptr;
  Wait* next_ = nullptr;
  bool woken_ = false;
};

class WaitList {
 public:
  explicit WaitList(ae::EventLoop& loop) : resume_queue_(ResumeQueue::of(loop)) {}
  WaitList(const WaitList&) = delete;
  WaitList& operator=(const WaitList&) = delete;
  /// Makes the tasks that still wait resume later, from the loop; their waits end without success.
  ~WaitList() {
    for (Wait* each = woken_.first; each != nullptr; each = woken_.first) {
      each->leave();
      each->list_ = nullptr;
    }
    while (!empty()) dismiss().list_ = nullptr;
  }

  ae::EventLoop& loop() const noexcept { return resume_queue_->loop(); }
  bool empty() const noexcept { return waiting_.first == nullptr; }
  /// Number of waits that have neither been woken nor ended.
  std::size_t size() const noexcept { return waiting_.count; }
  /// Wakes the wait that is first in the list; its task is resumed later, by the loop. Returns the
  /// wait.
  Wait& wake_first() noexcept {
    Wait& first = take_first();
    resume_queue_->add(first);
    return first;
  }
  void wake_all() noexcept {
    while (!empty()) wake_first();
  }
  /// Wakes the wait that is first in the list and returns it. The caller must then call finish() on
  /// it, which resumes its task; wake_first() leaves that to the loop.
  Wait& take_first() noexcept {
    Wait& first = *waiting_.first;
    first.leave();
    first.woken_ = true;
    first.enter(woken_);
    return first;
  }
  /// Makes all tasks in this list resume later, from the loop; their waits then end without
  /// success.
  void dismiss_all() noexcept {
    while (!empty()) dismiss();
  }

 private:
  friend class Wait;
  Wait& dismiss() noexcept {
    Wait& first = *waiting_.first;
    first.leave();
    resume_queue_->add(first);
    return first;
  }

  const std::shared_ptr<ResumeQueue> resume_queue_;
  Wait::Ends waiting_;
  Wait::Ends woken_;  // the waits that were woken and are not destroyed yet
};

inline Wait::Wait(WaitList& list, ae::Duration limit) noexcept
    : Timed(list.loop(), limit), list_(&list) {}

inline void Wait::wait_in_list(Waiter waiter) {
  wait(waiter);  // starts the time-out; may throw std::bad_alloc
  enter(list_->waiting_);
}

}}}  // namespace conn::co::detail
