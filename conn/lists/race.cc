// SPDX-License-Identifier: BSD-3-Clause
#include "conn/lists/race.h"

#include <algorithm>

namespace conn { inline namespace AECONN_ABI {

Race::Move Race::next(ae::TimePoint now) {
  if (winner_ != kNone) return {Step::kWon, winner_};
  if (now >= deadline_) return {Step::kLost};
  if (started_ < failed_.size()) {
    const bool free = started_ == 0 || failed_[started_ - 1] || now >= head_start_ends_;
    if (!free) return {Step::kWait};
    head_start_ends_ = delay_ > deadline_ - now ? deadline_ : now + delay_;
    return {Step::kStart, started_++};
  }
  const bool all_failed =
      std::all_of(failed_.begin(), failed_.end(), [](bool failed) { return failed; });
  return {all_failed ? Step::kLost : Step::kWait};
}

void Race::ready(std::size_t candidate) {
  if (winner_ == kNone && !failed_[candidate]) winner_ = candidate;
}

void Race::failed(std::size_t candidate) {
  if (winner_ == kNone) failed_[candidate] = true;
}

ae::TimePoint Race::wake() const {
  return started_ < failed_.size() ? std::min(head_start_ends_, deadline_) : deadline_;
}

}}  // namespace conn
