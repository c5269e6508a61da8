// SPDX-License-Identifier: BSD-3-Clause
// Prepared queue pairs of a loop: when they are made for future connections, how many at a time,
// and when they are dropped.

#include <algorithm>

#include "conn/rdma/loop/loop_state.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

ae::TimePoint clock_now() { return std::chrono::steady_clock::now(); }

// They are made after this long without a new connection, but postponed no longer than kPutOff.
constexpr ae::Duration kQuiet = std::chrono::milliseconds(10);
constexpr ae::Duration kPutOff = std::chrono::seconds(1);

}  // namespace

void LoopState::remove(LoopListener& listener) noexcept {
  listeners_.erase(&listener);
  if (listener.settings().prepared != 0) prepare_soon();
}

void LoopState::prepare_soon() noexcept {
  const ae::TimePoint now = clock_now();
  if (prepare_timer_ == 0) prepare_by_ = now + kPutOff;
  prepare_at_ = std::min(now + kQuiet, prepare_by_);
  if (prepare_timer_ != 0) return;
  try {
    prepare_timer_ = loop_.add_time_event(kQuiet, [this] { return prepare(); });
  } catch (const std::bad_alloc&) {  // the next connection asks again
  }
}

ae::Duration LoopState::prepare() {
  const ae::TimePoint now = clock_now();
  if (now < prepare_at_) return prepare_at_ - now;
  bool more = true;
  try {
    for (bool first = true; more && (first || has_share_left()); first = false) {
      const Spending spending(*this);
      more = prepare_one();
    }
    start_maintenance();
  } catch (const std::exception&) {  // connections are made without them
    more = false;
  }
  if (more) return std::chrono::milliseconds(1);
  prepare_timer_ = 0;
  return ae::kNoMore;
}

std::size_t LoopState::prepared() const noexcept {
  std::size_t all = 0;
  for (const auto& context : contexts_) all += context->prepared();
  return all;
}

bool LoopState::prepare_one() {
  bool wished = false;
  for (const LoopListener* listener : listeners_) {
    if (!listener->wishes_prepared()) continue;
    wished = true;
    for (const auto& context : contexts_)
      if (listener->is_on(context->name()) && context->prepare_one(listener->settings()))
        return true;
  }
  return !wished && std::any_of(contexts_.begin(), contexts_.end(),
                                [](const auto& context) { return context->drop_one_prepared(); });
}

}}}  // namespace conn::rdma
