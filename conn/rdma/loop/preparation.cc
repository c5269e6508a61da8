// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/loop/preparation.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <utility>

#include "conn/rdma/loop/clock.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// Queue pairs are created in advance once no connection or listener has come or gone (no call of
// soon()) for the time kQuiet, but at the latest the time kPutOff after the first of these calls.
constexpr ae::Duration kQuiet = std::chrono::milliseconds(10);
constexpr ae::Duration kPutOff = std::chrono::seconds(1);

}  // namespace

void Preparation::soon() noexcept {
  const ae::TimePoint now = clock_now();
  if (timer_ == 0) by_ = now + kPutOff;
  at_ = std::min(now + kQuiet, by_);
  if (timer_ != 0) return;
  try {
    timer_ = loop_.add_time_event(kQuiet, [this] { return on_timer(); });
  } catch (const std::bad_alloc&) {
    late_ = true;
    listeners_.ask_again();
  }
}

void Preparation::retry() noexcept {
  if (std::exchange(late_, false)) soon();
}

void Preparation::stop() noexcept {
  if (timer_ != 0) loop_.remove_time_event(std::exchange(timer_, 0));
}

ae::Duration Preparation::on_timer() {
  const ae::TimePoint now = clock_now();
  if (now < at_) return at_ - now;
  bool more = true;
  try {
    for (bool first = true; more && iteration_.allows(IterationBudget::Most::kShare, first);
         first = false) {
      const IterationBudget::Spending spending(iteration_);
      more = step();
    }
  } catch (const std::exception&) {  // not fatal: connections then create their own queue pairs
    more = false;
  }
  try {
    maintenance_.start();
  } catch (const std::bad_alloc&) {
    return kQuiet;  // no memory for the cleanup's timer: tries again later
  }
  if (more) return std::chrono::milliseconds(1);
  timer_ = 0;
  return ae::kNoMore;
}

// Creates one queue pair in advance or, if no listener needs any, destroys one. Returns true if
// there may be more to do.
bool Preparation::step() {
  const auto& contexts = devices_.contexts();
  bool wished = false;
  for (const LoopListener* listener : listeners_.all()) {
    if (!listener->wishes_prepared()) continue;
    wished = true;
    for (const auto& context : contexts)
      if (listener->is_on(context->name()) && context->prepare_one(listener->settings()))
        return true;
  }
  return !wished && std::any_of(contexts.begin(), contexts.end(),
                                [](const auto& context) { return context->drop_one_prepared(); });
}

}}}  // namespace conn::rdma
