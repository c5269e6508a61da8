// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/loop/tick_wheel.h"

#include <algorithm>

namespace conn { inline namespace AECONN_ABI { namespace rdma {

// An item that is due beyond the range of the wheel is put into the last slot. The class that owns
// the wheel, TickDispatch, schedules it again when it takes it from there.
ae::TimePoint TickWheel::put(TickItem& item, ae::TimePoint due, ae::TimePoint now) noexcept {
  remove(item);
  ++size_;
  item.due_ = due;
  if (due == ae::TimePoint::max()) {
    item.link_before(never_);
    return due;
  }
  if (scheduled_++ == 0) looked_ = tick_of(now);
  // The number of the wheel's slot is rounded up, so that an item is due when collect() finds it.
  const std::int64_t last = looked_ + static_cast<std::int64_t>(kSlots) - 1;
  const std::int64_t tick = due < ae::TimePoint::max() - kWidth ? tick_of(due) + 1 : last;
  const std::int64_t at = std::clamp(tick, looked_, last);
  item.link_before(slots_[static_cast<std::size_t>(at) % kSlots]);
  return ae::TimePoint(at * kWidth);
}

void TickWheel::remove(TickItem& item) noexcept {
  if (!item.in_wheel()) return;
  item.unlink();
  --size_;
  if (item.due_ != ae::TimePoint::max()) --scheduled_;
}

std::optional<ae::TimePoint> TickWheel::next(ae::TimePoint now) const noexcept {
  if (scheduled_ == 0) return std::nullopt;
  if (has_due()) return now;
  for (std::size_t i = 0; i < kSlots; ++i) {
    const std::int64_t tick = looked_ + static_cast<std::int64_t>(i);
    if (slots_[static_cast<std::size_t>(tick) % kSlots].in_wheel())
      return ae::TimePoint(tick * kWidth);
  }
  return std::nullopt;
}

void TickWheel::collect(ae::TimePoint now) noexcept {
  const std::int64_t until = tick_of(now);
  const std::int64_t slots = std::min(until - looked_ + 1, static_cast<std::int64_t>(kSlots));
  for (std::int64_t i = 0; i < slots; ++i) {
    Head& head = slots_[static_cast<std::size_t>(looked_ + i) % kSlots];
    while (head.in_wheel()) {
      TickItem& item = *head.next_;
      item.unlink();
      item.link_before(due_);
    }
  }
  looked_ = std::max(looked_, until + 1);
}

TickItem* TickWheel::take() noexcept {
  if (!has_due()) return nullptr;
  TickItem* item = due_.next_;
  item->unlink();
  --size_;
  --scheduled_;
  return item;
}

}}}  // namespace conn::rdma
