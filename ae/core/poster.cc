// SPDX-License-Identifier: BSD-3-Clause
#include "ae/core/poster.h"

#include <utility>

namespace ae { inline namespace AECONN_ABI {

bool Poster::Queue::push(std::function<void()>&& fn) {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  leave_to_parent();
  functions_.push_back(std::move(fn));
  if (!pending_.load(std::memory_order_relaxed)) {
    pending_.store(true, std::memory_order_release);
    wake_(context_);  // locked, so that close() waits for it before the watcher is destroyed
  }
  return true;
}

// In a child of fork(): sets aside functions posted before it, which the parent runs.
void Poster::Queue::leave_to_parent() noexcept {
  if (!made_here_.inherited()) return;
  made_here_.renew();
  of_parent_.swap(functions_);  // may own anything, so they are destroyed with the queue
  pending_.store(false, std::memory_order_relaxed);
}

bool Poster::Queue::open() noexcept {
  const std::lock_guard lock(mutex_);
  return !closed_;
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
