// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The time events of one loop, whatever the loop waits with: handlers in slots that are used again,
// a heap of their times, and lists of those that are due. Knows the clock, never sleeps.
//
// A timer that is moved to a later time, as an idle time-out is with every message, only writes
// that time down; its place in the heap is mended when it comes to the top. Only growing allocates:
// as many timers as there once were come and go for nothing, and again() never fails for memory.

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

  /// As in EventLoop. A delay of 0 or less does not read the clock. Takes `handler` only if it
  /// succeeds; std::bad_alloc, or LoopError for an empty handler.
  TimerId add(Duration delay, TimeHandler& handler);
  TimerId add(TimePoint when, TimeHandler& handler);
  bool again(TimerId id, Duration delay) noexcept;
  bool again(TimerId id, TimePoint when) noexcept;
  bool remove(TimerId id);

  /// True while timers are due that need no look at the clock: run_one() after collect() has work.
  bool has_ready() const noexcept { return listed_ != 0; }
  /// True while there are timers whose time has not been found to be over.
  bool has_waiting() const noexcept { return !heap_.empty(); }
  /// When the next of those is due; only if there is one.
  TimePoint next() noexcept;

  /// Finds those that are due at `now`, at most `limit` of them, and all without a delay. True if
  /// there may be more.
  bool collect(TimePoint now, std::size_t limit) noexcept;
  /// Whether collect() found one that has not run.
  bool has_collected() const noexcept { return !is_empty(kDue); }
  /// Runs the first of those; what it arms waits for the next collect(). Passes on what the handler
  /// throws; that timer is then gone.
  void run_one();

  /// Not from inside a handler of a timer.
  void clear();

 private:
  using Slot = std::uint32_t;
  enum class Place : std::uint8_t { kFree, kHeap, kList, kRunning };
  /// What was asked for a timer while its handler runs: stronger than what that returns.
  enum class Wish : std::uint8_t { kNone, kRemoved, kSoon, kAt };

  /// One cache line.
  struct alignas(64) Entry {
    TimeHandler handler;
    TimePoint due;                 // in the heap: not before the key there
    std::uint32_t generation = 1;  // the upper half of the id; counts uses of the slot
    std::uint32_t order = 0;       // among those due at one time
    Slot at = 0;                   // in the heap
    Slot prev = 0, next = 0;       // in a list
    Place place = Place::kFree;
    Wish wish = Wish::kNone;
  };
  struct Item {
    TimePoint key;
    std::uint32_t order;
    Slot slot;
  };

  static constexpr std::size_t kChunk = 128;
  // The first two slots are the heads of rings: timers without a delay, and those collected.
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
  /// Null if there is no such timer, or it has been removed by its own handler.
  Entry* find(TimerId id) noexcept;

  void grow();
  Slot take(TimeHandler& handler);
  void forget(Slot slot);
  void put_in_heap(Slot slot, TimePoint when) noexcept;
  void link(Slot slot, Slot head) noexcept;
  void unlink(Entry& out) noexcept;
  void leave(Entry& out) noexcept;  // its heap or list

  void place_at(std::size_t at, const Item& item) noexcept;
  void sift_up(std::size_t at, Item item) noexcept;
  void sift_down(std::size_t at, Item item) noexcept;
  void remove_at(std::size_t at) noexcept;
  void mend_top() noexcept;

  std::vector<std::unique_ptr<Entry[]>> chunks_;  // entries never move
  std::vector<Item> heap_;                        // of four children; has room for every slot
  std::vector<Slot> free_;                        // as well
  std::uint32_t last_order_ = 0;
  std::size_t live_ = 0;
  std::size_t listed_ = 0;  // in the rings of kSoon and kDue
};

}}  // namespace ae
