// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Makes a task wait for a duration.

#include <coroutine>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/co/timed.h"

namespace conn { inline namespace AECONN_ABI { namespace co {

namespace detail {

class Sleep final : public Timed {
 public:
  Sleep(ae::EventLoop& loop, ae::Duration duration) noexcept : Timed(loop, duration) {}
  bool await_ready() const noexcept { return false; }
  template <class Awaiting>
  void await_suspend(std::coroutine_handle<Awaiting> awaiting) {
    wait(Waiter(awaiting));
  }
  void await_resume() const noexcept {}

 private:
  void on_limit() noexcept override {}
};

}  // namespace detail

/// Makes the awaiting task wait for at least `duration`. With zero it waits until the loop's next
/// iteration.
[[nodiscard]] inline detail::Sleep sleep(ae::EventLoop& loop, ae::Duration duration) noexcept {
  return {loop, duration};
}

}}}  // namespace conn::co
