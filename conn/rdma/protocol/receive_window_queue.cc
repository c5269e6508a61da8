// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/protocol/receive_window_queue.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace conn { inline namespace AECONN_ABI { namespace rdma {

ReceiveWindowQueue::ReceiveWindowQueue(const ReceiveWindowQueue& other)
    : windows_(other.windows_),
      before_(other.before_),
      line_(other.line_),
      held_(other.held_),
      full_(other.full_),
      unposted_(other.unposted_),
      leave_(other.leave_) {
  auto mine = windows_.begin();
  for (const Window& theirs : other.windows_) line_.substitute(theirs, *mine++);
}

std::uint64_t ReceiveWindowQueue::bytes() const noexcept {
  std::uint64_t total = 0;
  for (const Window& window : windows_) total += window.buffer.length;
  return total;
}

std::uint32_t ReceiveWindowQueue::longest_outstanding() const noexcept {
  std::uint32_t longest = 0;
  for (std::size_t i = line_.count() - outstanding(); i < line_.count(); ++i)
    longest = std::max(longest, line_.at(i).buffer.length);
  return longest;
}

// --- adding and removing window memory -----------------------------------------------------------

void ReceiveWindowQueue::add(const WindowBuffer& buffer) {
  assert(buffer.data != nullptr && held_ < kSlots);
  Window& window = windows_.emplace_front();
  window.buffer = buffer;
  ++held_;
  append(window);
}

void ReceiveWindowQueue::append(Window& window) noexcept {
  const WindowBuffer buffer = window.buffer;
  window = Window{};
  window.buffer = buffer;
  window.end = buffer.length;
  window.in_line = true;
  line_.append(window);
  ++unposted_;
}

void ReceiveWindowQueue::replace_last(const WindowBuffer& buffer) noexcept {
  assert(unposted_ != 0);
  Window& last = line_.at(line_.count() - 1u);
  last.buffer = buffer;
  last.end = buffer.length;
}

bool ReceiveWindowQueue::add_spare(std::uint32_t length) noexcept {
  if (!has_spare()) return false;
  const auto found = std::find_if(windows_.begin(), windows_.end(), [length](const Window& window) {
    return is_spare(window, length);
  });
  if (found == windows_.end()) return false;
  append(*found);
  return true;
}

WindowBuffer ReceiveWindowQueue::take_spare_but(std::uint32_t length) noexcept {
  if (!has_spare()) return {};
  for (auto before = windows_.before_begin(), at = windows_.begin(); at != windows_.end();
       before = at++) {
    if (at->in_line || at->buffer.length == length) continue;
    const WindowBuffer buffer = at->buffer;
    windows_.erase_after(before);
    --held_;
    return buffer;
  }
  return {};
}

void ReceiveWindowQueue::become(std::span<std::byte> unread) noexcept {
  std::forward_list<Window> windows = std::move(windows_);
  const std::uint64_t all = total();
  *this = ReceiveWindowQueue{};
  before_ = all - unread.size();
  if (unread.empty()) return;
  // Reuses the list element of an existing window, so that no memory need be allocated.
  assert(!windows.empty());
  windows_.splice_after(windows_.before_begin(), windows, windows.before_begin());
  Window& window = windows_.front();
  window.buffer = {};
  window.buffer.data = unread.data();
  window.buffer.length = static_cast<std::uint32_t>(unread.size());
  held_ = 1;
  append(window);
  unposted_ = 0;
  (void)fill(window.buffer.length, {});
  window.left_over = true;
}

void ReceiveWindowQueue::keep_left_over() noexcept {
  become(line_.left_over() != 0 ? line_.unread() : std::span<std::byte>{});
}

// --- announcing windows to the peer --------------------------------------------------------------

void ReceiveWindowQueue::announced(std::uint64_t message, ae::TimePoint now) noexcept {
  assert(unposted_ != 0);
  Window& window = line_.at(line_.count() - unposted_);
  window.announced_by = message;
  window.announced_at = now;
  --unposted_;
}

// --- data that the peer writes -------------------------------------------------------------------

void ReceiveWindowQueue::left() noexcept {
  assert(leaving() && line_.count() - unposted_ > leave_);
  // The peer has stopped writing into the windows with indices full_ to leave_ - 1 before they were
  // full. Only the first of them can hold bytes, because the peer fills windows in order; the
  // others become spare (unused).
  while (leave_ > full_) {
    Window& window = line_.at(leave_ - 1u);
    if (window.read == window.filled) {
      remove(leave_ - 1u);
    } else {
      window.end = window.filled;
      ++full_;
    }
  }
  leave_ = kNotLeaving;
}

// Removes the window at index `place` from the line of windows in use. Its memory is kept as a
// spare window for a later offer, unless that is the memory given to become(), which belongs to the
// caller.
void ReceiveWindowQueue::remove(std::size_t place) noexcept {
  Window& window = line_.at(place);
  before_ += window.filled;
  window.filled = window.read = 0;
  window.in_line = false;
  const bool left_over = window.left_over;
  line_.remove(place);
  if (place < full_) --full_;
  if (leaving() && place < leave_) --leave_;
  if (!left_over) return;
  windows_.remove_if([](const Window& each) { return each.left_over; });
  --held_;
}

// --- reading by the user -------------------------------------------------------------------------

std::uint64_t ReceiveWindowQueue::total() const noexcept {
  std::uint64_t total = before_;
  for (std::size_t i = 0; i < line_.count(); ++i) total += line_.at(i).filled;
  return total;
}

void ReceiveWindowQueue::check() const {
#ifndef NDEBUG
  assert(full_ <= line_.count() && unposted_ <= line_.count() - full_ && line_.count() <= held_ &&
         held_ <= kSlots);
  assert(!leaving() ||
         (full_ <= leave_ && leave_ < line_.count() && unposted_ <= line_.count() - leave_));
  std::size_t held = 0, in_line = 0;
  for (const Window& window : windows_) {
    assert(window.read <= window.filled && window.filled <= window.end);
    assert(window.end <= window.buffer.length);
    assert(window.buffer.data != nullptr);
    assert(window.in_line || window.filled == 0);
    ++held;
    in_line += window.in_line ? 1 : 0;
  }
  assert(held == held_ && in_line == line_.count());
  for (std::size_t i = 0; i < line_.count(); ++i) {
    const Window& window = line_.at(i);
    assert(window.in_line && (i < full_) == window.full());
    // A full window that was read to its end is removed from line_ at once, so there is none.
    assert(i >= full_ || window.read < window.filled);
    // The user reads windows in order, so only the first can be partly read.
    assert(i == 0 || window.read == 0);
    // The peer fills windows in order, so those after the current one are empty.
    assert(i <= full_ || window.filled == 0);
    assert(i < static_cast<std::size_t>(line_.count() - unposted_) || window.filled == 0);
  }
#endif
}

}}}  // namespace conn::rdma
