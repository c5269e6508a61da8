// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Base of operations that wait for something other than the bytes of a stream. Each operation ends
// once: when its condition occurs, or when its time-out expires.

#include <cassert>
#include <coroutine>
#include <new>
#include <utility>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/co/result.h"
#include "conn/co/running.h"

namespace conn { inline namespace AECONN_ABI { namespace co::detail {

class Timed : public OfLibrary {
 public:
  Timed(Timed&& other) noexcept : loop_(other.loop_), limit_(other.limit_) {
    assert(other.timer_ == 0);
  }
  Timed& operator=(Timed&&) = delete;

 protected:
  Timed(ae::EventLoop& loop, ae::Duration limit) noexcept : loop_(&loop), limit_(limit) {}
  virtual ~Timed() { stop_timer(); }
  virtual void on_limit() noexcept = 0;

  ae::EventLoop& loop() const noexcept { return *loop_; }
  void wait(Waiter waiter) {
    waiter_ = waiter;
    if (limit_ != kNoLimit) set_timer(limit_);
  }
  /// Resumes the waiting coroutine. Must be called last, since the coroutine may destroy this
  /// object.
  void finish() {
    stop_timer();
    const Waiter waiter = waiter_;
    waiter.resume();
  }
  void stop_timer() noexcept {
    const ae::TimerId timer = std::exchange(timer_, 0);
    // alive_.open() is false once the loop is destroyed; the timer does not exist any more then.
    if (timer != 0 && alive_.open()) loop_->remove_time_event(timer);
  }

 private:
  void set_timer(ae::Duration delay) {
    alive_ = loop_->poster();
    timer_ = loop_->add_time_event(delay, [this] {
      timer_ = 0;
      on_limit();
      finish();
      return ae::kNoMore;
    });
  }

  ae::EventLoop* loop_;
  ae::Duration limit_;
  ae::Poster alive_;
  ae::TimerId timer_ = 0;
  Waiter waiter_;
};

}}}  // namespace conn::co::detail
