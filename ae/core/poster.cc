// SPDX-License-Identifier: BSD-3-Clause
#include "ae/core/poster.h"

#include <iterator>
#include <memory>
#include <new>
#include <utility>

namespace ae { inline namespace AECONN_ABI {

bool Poster::Queue::push(std::function<void()>&& fn) {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  leave_to_parent();
  functions_.push_back(std::move(fn));
  if (!pending_.load(std::memory_order_relaxed)) {
    pending_.store(true, std::memory_order_release);
    // wake_() is called with the queue locked. close() waits for the lock, so the watcher or
    // descriptor through which wake_() wakes the loop still exists.
    wake_(context_);
  }
  return true;
}

// In a child of fork(): sets aside the functions that were posted before the fork, because the
// parent runs them.
void Poster::Queue::leave_to_parent() noexcept {
  if (!made_here_.inherited()) return;
  made_here_.renew();
  // Destroying the parent's functions may run any destructor of the program. They are therefore
  // kept until the queue itself is destroyed, behind those that the parent has left to its own
  // parent.
  try {
    of_parent_.insert(of_parent_.end(), std::move_iterator(functions_.begin()),
                      std::move_iterator(functions_.end()));
    functions_.clear();
  } catch (const std::bad_alloc&) {
    std::construct_at(&functions_);  // without memory to keep them they are never destroyed
  }
  pending_.store(false, std::memory_order_relaxed);
}

bool Poster::Queue::open() noexcept {
  const std::lock_guard lock(mutex_);
  return !closed_;
}

void Poster::Queue::change_thread() noexcept {
  const std::lock_guard lock(changing_);
  thread_.store(std::this_thread::get_id(), std::memory_order_release);
}

void Poster::Queue::take(Functions& batch) {
  const std::lock_guard lock(mutex_);
  leave_to_parent();
  functions_.swap(batch);
  pending_.store(false, std::memory_order_relaxed);
}

void Poster::Queue::close(Functions& batch) {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  leave_to_parent();
  functions_.swap(batch);
  pending_.store(false, std::memory_order_relaxed);
}

bool Poster::open() const noexcept { return queue_ && queue_->open(); }
bool Poster::post(std::function<void()> fn) const { return queue_ && queue_->push(std::move(fn)); }

}}  // namespace ae
