// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/deadline.h"

#include <algorithm>
#include <exception>
#include <new>

namespace conn { inline namespace AECONN_ABI { namespace rdma {

bool Deadline::set(ae::Duration delay, Of what) noexcept {
  clear(&state_->loop());
  delay = std::max(delay, ae::Duration::zero());
  try {
    timer_ = state_->loop().add_time_event(
        delay, [this, what, due = state_->now() + delay] { return on_timer(what, due); });
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void Deadline::clear(ae::EventLoop* loop) noexcept {
  if (timer_ != 0 && loop != nullptr) loop->remove_time_event(timer_);
  timer_ = 0;
}

ae::Duration Deadline::on_timer(Of what, ae::TimePoint due) {
  if (state_->inherited()) return timer_ = 0, ae::kNoMore;
  constexpr ae::Duration kStoodStill = std::chrono::milliseconds(20);
  constexpr ae::Duration kAgain = std::chrono::milliseconds(1);
  if (!state_->iteration().may_expire()) return kAgain;
  timer_ = 0;
  const IterationBudget::Spending spending(state_->iteration());
  // If the loop did not run for a while, the awaited event may have arrived without being
  // processed. So rdma_cm events are processed before the time counts as over: up to 64 if this
  // timer is late and the answer of an address is awaited (kAddress); otherwise as many as this
  // iteration has time for. (An accepted connection can also learn from its queue pair that it is
  // established.)
  const bool late = std::chrono::steady_clock::now() - due > kStoodStill;
  try {
    state_->catch_up(late && what == Of::kAddress ? IterationBudget::Most::kAll
                                                  : IterationBudget::Most::kShare);
  } catch (const std::exception&) {
    user_.on_no_memory();
  }
  // If an event that was processed above has set another deadline (a new timer), the expired
  // deadline no longer applies.
  if (timer_ != 0) return ae::kNoMore;
  try {
    user_.on_deadline(what);
  } catch (const std::exception&) {
    user_.on_no_memory();
  }
  return ae::kNoMore;
}

}}}  // namespace conn::rdma
