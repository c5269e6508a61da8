// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A timer wheel that schedules the periodic checks of connections, with a resolution of 20 ms.
// Finding the due connections does not visit the others.

#include <array>
#include <bitset>
#include <cstddef>
#include <optional>

#include "ae/abi.h"
#include "ae/time.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Base class of the items in the wheel, which are connections. The destructor removes an item from
/// the wheel.
class TickItem {
 public:
  TickItem() = default;
  TickItem(const TickItem&) = delete;
  TickItem& operator=(const TickItem&) = delete;
  ae::TimePoint due() const noexcept { return due_; }
  bool in_wheel() const noexcept { return next_ != this; }

 protected:
  ~TickItem() { unlink(); }

 private:
  friend class TickWheel;
  void unlink() noexcept {
    next_->previous_ = previous_;
    previous_->next_ = next_;
    next_ = previous_ = this;
  }
  void link_before(TickItem& head) noexcept {
    previous_ = head.previous_;
    next_ = &head;
    previous_->next_ = this;
    head.previous_ = this;
  }
  TickItem* next_ = this;
  TickItem* previous_ = this;
  ae::TimePoint due_{};
};

class TickWheel {
 public:
  static constexpr ae::Duration kWidth = std::chrono::milliseconds(20);

  /// Schedules `item` for `due`, instead of the time scheduled before; TimePoint::max() means
  /// never. Returns the time at which collect() will find the item: `due` rounded up; or, if `due`
  /// is beyond the range of the wheel (about 5 s), an earlier time, at which the item must be
  /// scheduled again.
  ae::TimePoint put(TickItem& item, ae::TimePoint due, ae::TimePoint now) noexcept;
  void remove(TickItem& item) noexcept;
  /// Returns the time at which collect() may find a due item; no value if no item is scheduled.
  std::optional<ae::TimePoint> next(ae::TimePoint now) const noexcept;
  /// Moves the items that are due at `now` to the list from which take() returns them.
  void collect(ae::TimePoint now) noexcept;
  bool has_due() const noexcept { return due_.in_wheel(); }
  /// Removes and returns the next due item; null if there is none.
  TickItem* take() noexcept;
  std::size_t size() const noexcept { return size_; }
  /// Returns the number of items with a due time other than TimePoint::max().
  std::size_t scheduled() const noexcept { return scheduled_; }

 private:
  static constexpr std::size_t kSlots = 256;
  struct Head final : TickItem {};
  static std::int64_t tick_of(ae::TimePoint time) noexcept {
    return time.time_since_epoch() / kWidth;
  }

  std::array<Head, kSlots> slots_;
  Head due_, never_;
  std::int64_t looked_ = 0;  // time, in units of kWidth, of the first slot not visited yet
  std::size_t size_ = 0, scheduled_ = 0;
};

}}}  // namespace conn::rdma
