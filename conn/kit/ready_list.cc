// SPDX-License-Identifier: BSD-3-Clause
#include "conn/kit/ready_list.h"

namespace conn::inline AECONN_ABI {

void ReadyItem::unqueue() noexcept {
  if (next_ == nullptr) return;
  prev_->next_ = next_;
  next_->prev_ = prev_;
  prev_ = next_ = nullptr;
}

ReadyList::~ReadyList() {
  unqueue_all(turn_);
  unqueue_all(waiting_);
}

void ReadyList::append(Head& list, ReadyItem& item) noexcept {
  item.prev_ = list.prev_;
  item.next_ = &list;
  list.prev_->next_ = &item;
  list.prev_ = &item;
}

void ReadyList::unqueue_all(Head& list) noexcept {
  while (!list.alone()) list.next_->unqueue();
}

void ReadyList::push(ReadyItem& item) noexcept {
  if (item.queued()) return;
  append(waiting_, item);
  loop_.nudge();
}

std::size_t ReadyList::process_pending() {
  // The whole list moves over at once, so no count is kept and no iterator is held: handlers may
  // unqueue or destroy any item of either list, and what they push is not seen in this turn.
  if (!waiting_.alone()) {
    ReadyItem* const first = waiting_.next_;
    ReadyItem* const last = waiting_.prev_;
    first->prev_ = turn_.prev_;
    turn_.prev_->next_ = first;
    last->next_ = &turn_;
    turn_.prev_ = last;
    waiting_.next_ = waiting_.prev_ = &waiting_;
  }
  std::size_t ran = 0;
  while (!turn_.alone()) {
    ReadyItem* const item = turn_.next_;
    item->unqueue();
    ran += item->run_ready();
  }
  return ran;
}

}  // namespace conn::inline AECONN_ABI
