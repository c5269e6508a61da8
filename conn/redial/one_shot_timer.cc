// SPDX-License-Identifier: BSD-3-Clause
#include "conn/redial/one_shot_timer.h"

#include <new>
#include <utility>

namespace conn { inline namespace AECONN_ABI {

OneShotTimer::OneShotTimer(ae::EventLoop& loop, std::function<void()> handler)
    : loop_(loop), handler_(std::move(handler)), event_(add_event()) {}

ae::TimerId OneShotTimer::add_event() {
  return loop_.add_time_event(kLongest, [this] { return expire(); });
}

ae::Duration OneShotTimer::expire() {
  if (!is_set()) return kLongest;
  std::function<void()> handler;  // a copy, because the handler may destroy this timer
  try {
    handler = handler_;
    event_ = add_event();
  } catch (const std::bad_alloc&) {
    return kRetry;
  }
  due_ = kNotSet;
  handler();
  return ae::kNoMore;
}

}}  // namespace conn
