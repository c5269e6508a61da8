// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Makes tasks wait for an event, for a group of tasks to end, or for other handlers to run.

#include <coroutine>
#include <cstddef>
#include <memory>
#include <utility>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/co/result.h"
#include "conn/co/running.h"
#include "conn/co/wait.h"
#include "conn/kit/ready_list.h"

namespace conn { inline namespace AECONN_ABI { namespace co {

namespace detail {

class EventWait final : public Wait {
 public:
  /// Makes a wait that ends when the number `missing` has become 0.
  EventWait(WaitList& list, const std::size_t& missing, ae::Duration limit) noexcept
      : Wait(list, limit), missing_(&missing) {}
  bool await_ready() noexcept {
    if (*missing_ == 0) be_woken();
    return woken();
  }
  bool await_resume() const noexcept { return woken(); }

 private:
  const std::size_t* missing_;
};

class Yield final : public OfLibrary, private ReadyItem {
 public:
  explicit Yield(std::shared_ptr<ResumeQueue> resume_queue) noexcept
      : resume_queue_(std::move(resume_queue)) {}
  Yield(Yield&& other) noexcept : resume_queue_(other.resume_queue_) {}
  Yield& operator=(Yield&&) = delete;
  ~Yield() override = default;
  bool await_ready() const noexcept { return false; }
  template <class Awaiting>
  void await_suspend(std::coroutine_handle<Awaiting> awaiting) noexcept {
    waiter_ = Waiter(awaiting);
    resume_queue_->add(*this);
  }
  void await_resume() const noexcept {}

 private:
  std::size_t run_ready() override {
    const Waiter waiter = waiter_;
    waiter.resume();
    return 1;
  }
  const std::shared_ptr<ResumeQueue> resume_queue_;
  Waiter waiter_;
};

}  // namespace detail

/// A flag that any number of tasks can wait for. Use it on one loop's thread only. It must not
/// outlive the loop. An operation that wait() has returned must be awaited before the event is
/// destroyed. Tasks that are waiting when it is destroyed resume with false.
class Event {
 public:
  /// Makes an event that is not set. Throws std::bad_alloc; only the first event of a loop can
  /// throw.
  explicit Event(ae::EventLoop& loop) : waits_(loop) {}

  /// Sets the event. All waiting tasks resume, in the order in which they began to wait: later from
  /// the loop, not inside this call. While the event is set, wait() completes at once.
  void set() noexcept {
    missing_ = 0;
    waits_.wake_all();
  }
  /// Resets the event: it is not set any more, and later waits block. Tasks that set() has woken
  /// still resume.
  void reset() noexcept { missing_ = 1; }
  bool is_set() const noexcept { return missing_ == 0; }  ///< returns whether the event is set now
  /// Waits until the event is set and returns true. Returns false if the time-out expires or the
  /// event is destroyed first.
  [[nodiscard]] detail::EventWait wait(ae::Duration limit = kNoLimit) noexcept {
    return {waits_, missing_, limit};
  }

 private:
  std::size_t missing_ = 1;
  detail::WaitList waits_;
};

/// Counts members and wakes waiting tasks when none is left, so that a group of tasks can be
/// awaited. A task that takes a Member as a parameter is counted until its frame is destroyed,
/// whether it returned, threw or was cancelled. Members may outlive the group. Otherwise the rules
/// of class Event about the thread, the lifetime and waiting apply to a WaitGroup, too.
class WaitGroup {
 public:
  class Member;

  /// Makes a group that has no members yet. Throws std::bad_alloc.
  explicit WaitGroup(ae::EventLoop& loop) : count_(std::make_shared<Count>(loop)) {}
  WaitGroup(const WaitGroup&) = delete;
  WaitGroup& operator=(const WaitGroup&) = delete;
  /// Destroys the group: tasks that wait for it resume, and their wait() returns false.
  ~WaitGroup() { count_->waits.dismiss_all(); }

  /// Adds a member to the group. It belongs to the group until the returned object is destroyed.
  [[nodiscard]] inline Member join() noexcept;
  /// Returns the number of members now.
  std::size_t size() const noexcept { return count_->members; }
  /// Waits until the group has no members and returns true, at once if it has none. Returns false
  /// if the time-out expires first.
  [[nodiscard]] detail::EventWait wait(ae::Duration limit = kNoLimit) noexcept {
    return {count_->waits, count_->members, limit};
  }

 private:
  struct Count {
    explicit Count(ae::EventLoop& loop) : waits(loop) {}
    std::size_t members = 0;
    detail::WaitList waits;
  };
  std::shared_ptr<Count> count_;
};

/// A membership in a WaitGroup. Destroying it ends the membership.
class WaitGroup::Member {
 public:
  Member(Member&&) noexcept = default;  ///< moves the membership; the moved-from object has none
  /// Takes over the membership of `other`. Ends the membership that this object had before.
  Member& operator=(Member&& other) noexcept {
    Member(std::move(other)).count_.swap(count_);
    return *this;
  }
  ~Member() {
    if (count_ != nullptr && --count_->members == 0) count_->waits.wake_all();
  }

 private:
  friend class WaitGroup;
  explicit Member(std::shared_ptr<Count> count) noexcept : count_(std::move(count)) {
    ++count_->members;
  }
  std::shared_ptr<Count> count_;
};

inline WaitGroup::Member WaitGroup::join() noexcept { return Member(count_); }

/// Suspends the awaiting task until the handlers that are due now, and tasks that yielded earlier,
/// have run. Throws std::bad_alloc, which only the first call for a loop can do.
[[nodiscard]] inline detail::Yield yield(ae::EventLoop& loop) {
  return detail::Yield(detail::ResumeQueue::of(loop));
}

}}}  // namespace conn::co
