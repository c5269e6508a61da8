// SPDX-License-Identifier: BSD-3-Clause
#include "conn/dial_limit.h"

#include <algorithm>
#include <new>
#include <utility>

#include "ae/once.h"

namespace conn { inline namespace AECONN_ABI {

DialLimit& DialLimit::of_process() {
  return ae::once([] { return DialLimit(32); });
}

DialLimit::PlacePtr DialLimit::enter(ae::EventLoop& loop, std::function<void()> granted) {
  auto entry = std::make_shared<Entry>();
  entry->poster = loop.poster();
  auto place = std::make_unique<Place>(*this, entry);
  const std::lock_guard lock(mutex_);
  forget_parent();
  grant();
  if (taken_ < most_ && line_.empty()) {
    entry->holds = true;
    ++taken_;
  } else {
    entry->granted = std::move(granted);
    line_.push_back(entry);
  }
  return place;
}

void DialLimit::leave(const std::shared_ptr<Entry>& entry) noexcept {
  entry->granted = nullptr;  // a function posted by grant() that runs later then calls nothing
  const std::lock_guard lock(mutex_);
  forget_parent();
  if (entry->made_here.inherited()) return;
  if (std::exchange(entry->holds, false)) {
    --taken_;
  } else {
    std::erase(line_, entry);
  }
  grant();
}

/// To be called with mutex_ locked. In a child of fork(), resets the number of places in use and
/// empties the queue: both describe attempts of the parent process.
void DialLimit::forget_parent() noexcept {
  if (!made_here_.inherited()) return;
  made_here_.renew();
  taken_ = 0;
  line_.clear();
}

/// Gives free places (permissions to connect) to the clients at the front of the queue. To be
/// called with mutex_ locked. A client that cannot be notified for lack of memory stays first in
/// the queue, and is tried again when any client calls enter() or holds(), or destroys its Place,
/// or when set_most() is called.
void DialLimit::grant() noexcept {
  while (taken_ < most_ && !line_.empty()) {
    const std::shared_ptr<Entry> next = line_.front();
    try {
      next->holds = next->poster.post([next] {  // post() returns false if the loop has ended
        const std::function<void()> granted = std::exchange(next->granted, nullptr);
        if (granted) granted();
      });
    } catch (const std::bad_alloc&) {
      return;
    }
    line_.pop_front();
    if (next->holds) ++taken_;
  }
}

void DialLimit::set_most(std::size_t most) {
  const std::lock_guard lock(mutex_);
  forget_parent();
  most_ = std::max<std::size_t>(most, 1);
  grant();
}

std::size_t DialLimit::taken() const {
  const std::lock_guard lock(mutex_);
  return made_here_.inherited() ? 0 : taken_;
}

std::size_t DialLimit::waiting() const {
  const std::lock_guard lock(mutex_);
  return made_here_.inherited() ? 0 : line_.size();
}

bool DialLimit::Place::holds() const {
  const std::lock_guard lock(limit_.mutex_);
  limit_.forget_parent();
  limit_.grant();  // tries again to notify clients, if there was no memory before
  return entry_->holds;
}

}}  // namespace conn
