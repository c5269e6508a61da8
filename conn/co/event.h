// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Waiting until something has happened, until all of a group have ended, for others' turn.

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
  /// `missing`: how much is missing until it is over.
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
  explicit Yield(std::shared_ptr<Turns> turns) noexcept : turns_(std::move(turns)) {}
  Yield(Yield&& other) noexcept : turns_(other.turns_) {}
  Yield& operator=(Yield&&) = delete;
  ~Yield() override = default;
  bool await_ready() const noexcept { return false; }
  template <class Awaiting>
  void await_suspend(std::coroutine_handle<Awaiting> awaiting) noexcept {
    waiter_ = Waiter(awaiting);
    turns_->add(*this);
  }
  void await_resume() const noexcept {}

 private:
  std::size_t run_ready() override {
    const Waiter waiter = waiter_;
    waiter.resume();
    return 1;
  }
  const std::shared_ptr<Turns> turns_;
  Waiter waiter_;
};

}  // namespace detail

/// Something that has happened, or not: any number of tasks may wait for it. All on one loop's
/// thread. It must not outlive the loop, nor end before a task that is about to wait for it; who
/// waits when it ends goes on with false.
class Event {
 public:
  /// Throws std::bad_alloc for the first one of its loop.
  explicit Event(ae::EventLoop& loop) : waits_(loop) {}

  /// All who wait go on, in a later turn of the loop and in the order in which they came; who waits
  /// from now on does not wait.
  void set() noexcept {
    missing_ = 0;
    waits_.wake_all();
  }
  void reset() noexcept { missing_ = 1; }  ///< who was woken goes on; others wait again
  bool is_set() const noexcept { return missing_ == 0; }  ///< whether it has happened
  /// Until it is set: true. False after the limit, and where the event ended.
  [[nodiscard]] detail::EventWait wait(ae::Duration limit = kNoLimit) noexcept {
    return {waits_, missing_, limit};
  }

 private:
  std::size_t missing_ = 1;
  detail::WaitList waits_;
};

/// Counts members, and tells when there are none: tasks that are to end before something else
/// begins. A task takes a Member as its parameter, and counts until its frame goes, whether it
/// returned, threw or was cancelled. As Event otherwise; Members may outlive it.
class WaitGroup {
 public:
  class Member;

  /// Without members. Throws std::bad_alloc.
  explicit WaitGroup(ae::EventLoop& loop) : count_(std::make_shared<Count>(loop)) {}
  WaitGroup(const WaitGroup&) = delete;
  WaitGroup& operator=(const WaitGroup&) = delete;
  /// Who waits goes on with false.
  ~WaitGroup() { count_->waits.dismiss_all(); }

  /// One more, until that ends.
  [[nodiscard]] inline Member join() noexcept;
  std::size_t size() const noexcept { return count_->members; }  ///< how many there are
  /// Until there are none, and at once where there are none: true. False after the limit.
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

/// Counts in a WaitGroup until its end.
class WaitGroup::Member {
 public:
  Member(Member&&) noexcept = default;  ///< leaves one that does not count
  /// What it was counts no more.
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

/// Lets others have their turn: goes on once the handlers that are due now have run, and tasks that
/// yielded before. Throws std::bad_alloc for the first one of its loop.
[[nodiscard]] inline detail::Yield yield(ae::EventLoop& loop) {
  return detail::Yield(detail::Turns::of(loop));
}

}}}  // namespace conn::co
