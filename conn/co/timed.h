// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What waits for something else than the bytes of a stream: it is over once, or its time is.

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
  /// The last thing that is called: it goes on with who waits, which may end this.
  void finish() {
    stop_timer();
    const Waiter waiter = waiter_;
    waiter.resume();
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
  void stop_timer() noexcept {
    const ae::TimerId timer = std::exchange(timer_, 0);
    if (timer != 0 && alive_.open()) loop_->remove_time_event(timer);  // not after the loop's end
  }

  ae::EventLoop* loop_;
  ae::Duration limit_;
  ae::Poster alive_;
  ae::TimerId timer_ = 0;
  Waiter waiter_;
};

}}}  // namespace conn::co::detail
