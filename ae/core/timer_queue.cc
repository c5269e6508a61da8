// SPDX-License-Identifier: BSD-3-Clause
#include "ae/core/timer_queue.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

namespace ae { inline namespace AECONN_ABI {
namespace {

// A free slot's memory is prefetched this many allocations before the slot is used.
constexpr std::size_t kAhead = 4;

}  // namespace

TimerQueue::TimerQueue() {
  grow();
  for (const Slot head : {kSoon, kDue}) entry(head).prev = entry(head).next = head;
}

TimerId TimerQueue::add(Duration delay, TimeHandler& handler) {
  const Slot slot = take(handler);
  if (delay <= Duration::zero()) {
    link(slot, kSoon);
  } else {
    set_due(slot, after(delay));
  }
  return TimerId{entry(slot).generation} << 32 | slot;
}

TimerId TimerQueue::add(TimePoint when, TimeHandler& handler) {
  const Slot slot = take(handler);
  set_due(slot, when);
  return TimerId{entry(slot).generation} << 32 | slot;
}

bool TimerQueue::again(TimerId id, Duration delay) noexcept {
  if (delay > Duration::zero()) return again(id, after(delay));
  Entry* const moved = find(id);
  if (moved == nullptr) return false;
  if (moved->place == Place::kRunning) {
    moved->wish = Wish::kSoon;
  } else {
    leave(*moved);
    link(static_cast<Slot>(id), kSoon);
  }
  return true;
}

bool TimerQueue::again(TimerId id, TimePoint when) noexcept {
  Entry* const moved = find(id);
  if (moved == nullptr) return false;
  if (moved->place == Place::kRunning) {
    moved->wish = Wish::kAt;
    moved->due = when;
  } else if (moved->place == Place::kHeap && when != TimePoint::max()) {
    moved->due = when;
    moved->order = ++last_order_;
    if (when < heap_[moved->at].key) {
      sift_up(moved->at, {when, moved->order, static_cast<Slot>(id)});
    }
  } else {
    leave(*moved);
    set_due(static_cast<Slot>(id), when);
  }
  return true;
}

bool TimerQueue::remove(TimerId id) {
  Entry* const gone = find(id);
  if (gone == nullptr) return false;
  if (gone->place == Place::kRunning) {
    gone->wish = Wish::kRemoved;
  } else {
    leave(*gone);
    forget(static_cast<Slot>(id));
  }
  return true;
}

TimePoint TimerQueue::next() noexcept {
  mend_top();
  return heap_.front().key;
}

bool TimerQueue::collect(TimePoint now, std::size_t limit) noexcept {
  bool more = false;
  while (!heap_.empty() && next() <= now) {
    if (limit-- == 0) {
      more = true;
      break;
    }
    const Slot slot = heap_.front().slot;
    remove_at(0);
    link(slot, kDue);
  }
  if (is_empty(kSoon)) return more;
  // Appends all timers without a delay, in one step, to the list of timers that run next (kDue).
  Entry& soon = entry(kSoon);
  Entry& due = entry(kDue);
  entry(due.prev).next = soon.next;
  entry(soon.next).prev = due.prev;
  entry(soon.prev).next = kDue;
  due.prev = soon.prev;
  soon.prev = soon.next = kSoon;
  return more;
}

void TimerQueue::run_one() {
  const Slot slot = entry(kDue).next;
  Entry& running = entry(slot);
  unlink(running);
  running.place = Place::kRunning;
  running.wish = Wish::kNone;
  Duration delay = kNoMore;
  try {
    delay = running.handler();
  } catch (...) {
    forget(slot);
    throw;
  }
  switch (running.wish) {
    case Wish::kAt:
      set_due(slot, running.due);
      break;
    case Wish::kSoon:
      link(slot, kSoon);
      break;
    case Wish::kRemoved:
      forget(slot);
      break;
    default:
      if (delay > Duration::zero()) {
        set_due(slot, after(delay));
      } else if (delay == kNoMore) {
        forget(slot);
      } else {
        link(slot, kSoon);
      }
  }
}

void TimerQueue::clear() {
  // The removal is repeated, because the destructor of a handler may add timers.
  while (live_ != 0) {
    for (Slot slot = kDue + 1; slot < slots(); ++slot) {
      Entry& gone = entry(slot);
      if (gone.place == Place::kFree) continue;
      leave(gone);
      forget(slot);
    }
  }
}

// Returns the time `delay` from now. Counts from the exact current time, not from the start of the
// iteration: otherwise a timer that a slow handler adds would expire early.
TimePoint TimerQueue::after(Duration delay) noexcept {
  const TimePoint now = std::chrono::steady_clock::now();
  return delay < TimePoint::max() - now ? now + delay : TimePoint::max();
}

TimerQueue::Entry* TimerQueue::find(TimerId id) noexcept {
  const auto slot = static_cast<Slot>(id);
  if (slot >= slots()) return nullptr;
  Entry& found = entry(slot);
  if (found.generation != id >> 32 || found.place == Place::kFree) return nullptr;
  if (found.place == Place::kRunning && found.wish == Wish::kRemoved) return nullptr;
  return &found;
}

void TimerQueue::grow() {
  const std::size_t before = slots();
  const std::size_t size = before + kChunk;
  if (size > std::numeric_limits<Slot>::max()) throw std::bad_alloc();
  if (heap_.capacity() < size) heap_.reserve(std::max(size, heap_.capacity() * 2));
  if (free_.capacity() < size) free_.reserve(std::max(size, free_.capacity() * 2));
  chunks_.push_back(std::make_unique<Entry[]>(kChunk));
  const std::size_t first = std::max<std::size_t>(before, kDue + 1);
  for (std::size_t slot = size; slot-- > first;) free_.push_back(static_cast<Slot>(slot));
}

TimerQueue::Slot TimerQueue::take(TimeHandler& handler) {
  if (!handler) throw LoopError("a time event needs a handler");
  if (free_.empty()) grow();
  const Slot slot = free_.back();
  free_.pop_back();
  // Slots are freed in any order, so each use of a free slot would cause a cache miss. Prefetching
  // the slot before its use hides the miss.
  if (free_.size() >= kAhead) __builtin_prefetch(&entry(free_[free_.size() - kAhead]), 1);
  entry(slot).handler.swap(handler);
  ++live_;
  return slot;
}

void TimerQueue::forget(Slot slot) {
  Entry& gone = entry(slot);
  // The handler is destroyed when this function returns: its destructor may call this queue again.
  const TimeHandler last = std::move(gone.handler);
  gone.place = Place::kFree;
  --live_;
  // Each use of a slot increments its generation, a part of the timer's id. Once the generations
  // are used up, the slot is never used again.
  if (++gone.generation != 0) free_.push_back(slot);
}

void TimerQueue::set_due(Slot slot, TimePoint when) noexcept {
  Entry& armed = entry(slot);
  armed.place = when == TimePoint::max() ? Place::kNever : Place::kHeap;
  if (armed.place == Place::kNever) return;
  armed.due = when;
  armed.order = ++last_order_;
  const Item item{when, armed.order, slot};
  heap_.push_back(item);  // push_back() does not allocate: grow() has reserved the capacity
  sift_up(heap_.size() - 1, item);
}

void TimerQueue::link(Slot slot, Slot head) noexcept {
  Entry& in = entry(slot);
  Entry& ring = entry(head);
  in.place = Place::kList;
  in.prev = ring.prev;
  in.next = head;
  entry(ring.prev).next = slot;
  ring.prev = slot;
  ++listed_;
}

void TimerQueue::unlink(Entry& out) noexcept {
  --listed_;
  entry(out.prev).next = out.next;
  entry(out.next).prev = out.prev;
}

void TimerQueue::leave(Entry& out) noexcept {
  if (out.place == Place::kHeap) {
    remove_at(out.at);
  } else if (out.place == Place::kList) {
    unlink(out);
  }
}

// --- the heap of timers, ordered by expiry time --------------------------------------------------

void TimerQueue::place_at(std::size_t at, const Item& item) noexcept {
  heap_[at] = item;
  entry(item.slot).at = static_cast<Slot>(at);
}

void TimerQueue::sift_up(std::size_t at, Item item) noexcept {
  while (at != 0) {
    const std::size_t parent = (at - 1) / 4;
    if (!before(item, heap_[parent])) break;
    place_at(at, heap_[parent]);
    at = parent;
  }
  place_at(at, item);
}

void TimerQueue::sift_down(std::size_t at, Item item) noexcept {
  const std::size_t size = heap_.size();
  for (;;) {
    const std::size_t first = at * 4 + 1;
    if (first >= size) break;
    std::size_t least = first;
    const std::size_t end = std::min(first + 4, size);
    for (std::size_t child = first + 1; child < end; ++child) {
      if (before(heap_[child], heap_[least])) least = child;
    }
    if (!before(heap_[least], item)) break;
    place_at(at, heap_[least]);
    at = least;
  }
  place_at(at, item);
}

void TimerQueue::remove_at(std::size_t at) noexcept {
  const Item last = heap_.back();
  heap_.pop_back();
  if (at == heap_.size()) return;
  if (at != 0 && before(last, heap_[(at - 1) / 4])) {
    sift_up(at, last);
  } else {
    sift_down(at, last);
  }
}

void TimerQueue::mend_top() noexcept {
  for (;;) {
    const Item& top = heap_.front();
    const Entry& its = entry(top.slot);
    if (its.order == top.order) return;
    sift_down(0, {its.due, its.order, top.slot});
  }
}

}}  // namespace ae
