// SPDX-License-Identifier: BSD-3-Clause
#include "conn/kit/ready_list.h"

namespace conn { inline namespace AECONN_ABI {

ReadyList::~ReadyList() {
  unqueue_all(serving_);
  unqueue_all(waiting_);
}

void ReadyList::unqueue_all(Head& list) noexcept {
  while (!list.alone()) list.next_->unqueue();
}

// Serves a list that is not empty. A single item, the usual case, is not moved to serving_ first.
std::size_t ReadyList::process_some() {
  std::size_t ran = 0;
  if (serving_.alone() && waiting_.has_one()) {
    ran = run_first(waiting_);
  } else {
    begin_serving();
    ran = run_first(serving_);
  }
  while (!serving_.alone() && loop_.has_time()) ran += run_first(serving_);
  return ran;
}

void ReadyList::process_every() {
  begin_serving();
  while (!serving_.alone()) (void)run_first(serving_);
}

std::size_t ReadyList::run_first(Head& list) {
  ReadyItem* const item = list.next_;
  item->unqueue();
  return item->run_ready();
}

void ReadyList::begin_serving() noexcept {
  // The whole list of waiting items is appended to serving_ at once, without a counter or an
  // iterator. Handlers may therefore unqueue or destroy any item of either list, and items that
  // they queue are not served in this call.
  if (!waiting_.alone()) {
    ReadyItem* const first = waiting_.next_;
    ReadyItem* const last = waiting_.prev_;
    first->prev_ = serving_.prev_;
    serving_.prev_->next_ = first;
    last->next_ = &serving_;
    serving_.prev_ = last;
    waiting_.next_ = waiting_.prev_ = &waiting_;
  }
}

}}  // namespace conn
