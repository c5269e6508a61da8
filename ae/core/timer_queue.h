// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The time events of one loop, independent of how the loop waits: handlers in reusable slots, a
// heap ordered by time, and lists of expired timers. The queue reads the clock but never sleeps.
//
// Moving a timer to a later time (as a connection's idle time-out is moved by every message) only
// stores the new time; the timer's position in the heap is corrected when it reaches the top.
// Memory is allocated only when there are more timers than ever before: otherwise adding and
// removing a timer does not allocate. again() never fails for lack of memory.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"

namespace ae { inline namespace AECONN_ABI {

class TimerQueue {
 public:
  TimerQueue();
  TimerQueue(const TimerQueue&) = delete;
  TimerQueue& operator=(const TimerQueue&) = delete;
  ~TimerQueue() { clear(); }

  /// Adds a timer like EventLoop::add_time_event(). A delay of 0 or less does not read the clock.
  /// `handler` is moved from only on success. Throws std::bad_alloc, or LoopError for an empty
  /// handler.
  TimerId add(Duration delay, TimeHandler& handler);
  TimerId add(TimePoint when, TimeHandler& handler);
  bool again(TimerId id, Duration delay) noexcept;
  bool again(TimerId id, TimePoint when) noexcept;
  bool remove(TimerId id);

  /// Whether there are timers without a delay, or timers that collect() has found due and that have
  /// not run. If so, collect() finds timers for run_one() without reading the clock.
  bool has_ready() const noexcept { return listed_ != 0; }
  /// Whether the heap has timers. The heap holds the timers with an expiry time that collect() has
  /// not found due yet, except those at TimePoint::max(), which are never due.
  bool has_waiting() const noexcept { return !heap_.empty(); }
  /// Returns the expiry time of the next timer in the heap. To be called only if has_waiting() is
  /// true.
  TimePoint next() noexcept;

  /// Moves at most `limit` timers that are due at `now`, and all timers without a delay, to the
  /// list of timers that run_one() runs. Returns true if more timers may be due.
  bool collect(TimePoint now, std::size_t limit) noexcept;
  /// Whether collect() has found expired timers whose handlers have not run yet.
  bool has_collected() const noexcept { return !is_empty(kDue); }
  /// Runs the handler of the first timer in the list that collect() has filled. A timer that the
  /// handler adds or moves waits for the next collect(). Propagates an exception of the handler;
  /// the timer is then removed.
  void run_one();

  /// Removes all timers from the queue. Must not be called from inside the handler of a timer.
  void clear();

 private:
  using Slot = std::uint32_t;
  /// Where a timer is. kNever: nowhere, because its expiry time is TimePoint::max().
  enum class Place : std::uint8_t { kFree, kHeap, kList, kRunning, kNever };
  /// What again() or remove() requested for a timer while its handler runs. It overrides the delay
  /// that the handler returns.
  enum class Wish : std::uint8_t { kNone, kRemoved, kSoon, kAt };

  /// One timer of the queue; its data fills one cache line.
  struct alignas(64) Entry {
    TimeHandler handler;
    TimePoint due;  // expiry time of the timer; at or after its key in the heap
    // Number of the timer that uses this slot, or uses it next, counted from 1. It is the upper
    // half of the timer's id, so that the id of an earlier timer does not stand for this one.
    std::uint32_t generation = 1;
    std::uint32_t order = 0;  // position among timers with the same expiry time
    Slot at = 0;              // index of the timer in the heap
    // Neighbours in the ring of timers without a delay, or of expired timers that have not run.
    Slot prev = 0, next = 0;
    Place place = Place::kFree;
    Wish wish = Wish::kNone;
  };
  struct Item {
    TimePoint key;
    std::uint32_t order;
    Slot slot;
  };

  static constexpr std::size_t kChunk = 128;
  // The first two slots are the heads of two rings: timers without a delay (kSoon), and expired
  // timers whose handlers have not run yet (kDue).
  static constexpr Slot kSoon = 0;
  static constexpr Slot kDue = 1;

  static bool before(const Item& a, const Item& b) noexcept {
    if (a.key != b.key) return a.key < b.key;
    return static_cast<std::int32_t>(a.order - b.order) < 0;
  }
  static TimePoint after(Duration delay) noexcept;

  Entry& entry(Slot slot) noexcept { return chunks_[slot / kChunk][slot % kChunk]; }
  const Entry& entry(Slot slot) const noexcept { return chunks_[slot / kChunk][slot % kChunk]; }
  std::size_t slots() const noexcept { return chunks_.size() * kChunk; }
  bool is_empty(Slot head) const noexcept { return entry(head).next == head; }
  /// Returns the timer `id`; null if it does not exist or was removed by its own handler.
  Entry* find(TimerId id) noexcept;

  void grow();
  Slot take(TimeHandler& handler);
  void forget(Slot slot);
  void set_due(Slot slot, TimePoint when) noexcept;
  void link(Slot slot, Slot head) noexcept;
  void unlink(Entry& out) noexcept;
  void leave(Entry& out) noexcept;  // removes a timer from the heap or ring that may hold it

  void place_at(std::size_t at, const Item& item) noexcept;
  void sift_up(std::size_t at, Item item) noexcept;
  void sift_down(std::size_t at, Item item) noexcept;
  void remove_at(std::size_t at) noexcept;
  void mend_top() noexcept;

  // The timers' data, in blocks of fixed size, so that an Entry never moves in memory.
  std::vector<std::unique_ptr<Entry[]>> chunks_;
  // Heap with four children per node; has reserved capacity for every slot.
  std::vector<Item> heap_;
  std::vector<Slot> free_;  // slots without a timer; has reserved capacity for every slot
  std::uint32_t last_order_ = 0;
  std::size_t live_ = 0;
  // Number of timers in the rings kSoon (without a delay) and kDue (due, but not run yet).
  std::size_t listed_ = 0;
};

}}  // namespace ae
