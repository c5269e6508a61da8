// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/protocol/receive_window_queue.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace conn { inline namespace AECONN_ABI { namespace rdma {

std::uint64_t ReceiveWindowQueue::bytes() const noexcept {
  std::uint64_t total = 0;
  for (const Window& window : windows_) total += window.buffer.length;
  return total;
}

std::uint32_t ReceiveWindowQueue::longest_outstanding() const noexcept {
  std::uint32_t longest = 0;
  for (std::size_t i = count_ - outstanding(); i < count_; ++i)
    longest = std::max(longest, at(i).buffer.length);
  return longest;
}

// --- adding and removing window memory -----------------------------------------------------------

void ReceiveWindowQueue::add(const WindowBuffer& buffer) noexcept {
  assert(buffer.data != nullptr && held_ < kSlots);
  std::size_t slot = 0;
  while (windows_[slot].buffer) ++slot;
  windows_[slot].buffer = buffer;
  ++held_;
  append(slot);
}

void ReceiveWindowQueue::append(std::size_t slot) noexcept {
  const WindowBuffer buffer = windows_[slot].buffer;
  windows_[slot] = Window{};
  windows_[slot].buffer = buffer;
  windows_[slot].end = buffer.length;
  windows_[slot].in_line = true;
  line_[count_++] = static_cast<std::uint8_t>(slot);
  ++unposted_;
}

void ReceiveWindowQueue::replace_last(const WindowBuffer& buffer) noexcept {
  assert(unposted_ != 0);
  Window& last = at(count_ - 1u);
  last.buffer = buffer;
  last.end = buffer.length;
}

std::size_t ReceiveWindowQueue::find_spare(std::uint32_t length) const noexcept {
  const auto fits = [length](const Window& window) {
    return window.buffer && !window.in_line && (length == 0 || window.buffer.length == length);
  };
  return static_cast<std::size_t>(std::find_if(windows_.begin(), windows_.end(), fits) -
                                  windows_.begin());
}

bool ReceiveWindowQueue::add_spare(std::uint32_t length) noexcept {
  const std::size_t slot = has_spare() ? find_spare(length) : kSlots;
  if (slot != kSlots) append(slot);
  return slot != kSlots;
}

WindowBuffer ReceiveWindowQueue::take_spare_but(std::uint32_t length) noexcept {
  if (!has_spare()) return {};
  for (Window& window : windows_) {
    if (!window.buffer || window.in_line || window.buffer.length == length) continue;
    --held_;
    return std::exchange(window, Window{}).buffer;
  }
  return {};
}

void ReceiveWindowQueue::become(std::span<std::byte> unread) noexcept {
  *this = ReceiveWindowQueue{};
  if (unread.empty()) return;
  WindowBuffer buffer;
  buffer.data = unread.data();
  buffer.length = static_cast<std::uint32_t>(unread.size());
  add(buffer);
  announce_nothing();
  (void)fill(buffer.length, {});
}

// --- announcing windows to the peer --------------------------------------------------------------

void ReceiveWindowQueue::announced(std::uint64_t message, ae::TimePoint now) noexcept {
  assert(unposted_ != 0);
  Window& window = at(count_ - unposted_);
  window.announced_by = message;
  window.announced_at = now;
  --unposted_;
}

void ReceiveWindowQueue::announce_nothing() noexcept { unposted_ = 0; }

// --- data that the peer writes -------------------------------------------------------------------

void ReceiveWindowQueue::left() noexcept {
  assert(leaving() && count_ - unposted_ > leave_);
  // Among the windows that the peer was asked to leave, only the first one that is not full can
  // hold bytes, because the peer fills windows in order.
  while (leave_ > full_) {
    Window& window = at(leave_ - 1u);
    if (window.read == window.filled) {
      remove(leave_ - 1u);
    } else {
      window.end = window.filled;
      ++full_;
    }
  }
  leave_ = kNotLeaving;
}

// Takes the window at this place out of the line. Its memory is kept: the window is spare
// afterwards.
void ReceiveWindowQueue::remove(std::size_t place) noexcept {
  Window& window = at(place);
  window.filled = window.read = 0;
  window.in_line = false;
  std::copy(line_.begin() + static_cast<std::ptrdiff_t>(place) + 1, line_.begin() + count_,
            line_.begin() + static_cast<std::ptrdiff_t>(place));
  --count_;
  if (place < full_) --full_;
  if (leaving() && place < leave_) --leave_;
}

// --- the user reads ------------------------------------------------------------------------------

std::uint64_t ReceiveWindowQueue::unread_bytes() const noexcept {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < count_; ++i) total += at(i).filled - at(i).read;
  return total;
}

std::size_t ReceiveWindowQueue::peek(std::span<std::span<const std::byte>> pieces) const noexcept {
  std::size_t found = 0;
  for (std::size_t i = 0; i < count_ && found < pieces.size(); ++i) {
    const Window& window = at(i);
    if (window.read == window.filled) break;
    pieces[found++] = {window.buffer.data + window.read, window.filled - window.read};
  }
  return found;
}

void ReceiveWindowQueue::copy_unread(std::byte* into) const noexcept {
  for (std::size_t i = 0; i < count_; ++i) {
    const std::size_t size = at(i).filled - at(i).read;
    if (size != 0) std::memcpy(into, at(i).buffer.data + at(i).read, size);
    into += size;
  }
}

void ReceiveWindowQueue::check() const {
#ifndef NDEBUG
  assert(full_ <= count_ && unposted_ <= count_ - full_ && count_ <= held_ && held_ <= kSlots);
  assert(!leaving() || (full_ <= leave_ && leave_ < count_ && unposted_ <= count_ - leave_));
  std::size_t held = 0, in_line = 0;
  for (const Window& window : windows_) {
    assert(window.read <= window.filled && window.filled <= window.end);
    assert(window.end <= window.buffer.length);
    assert(window.buffer.data != nullptr || window.buffer.length == 0);
    assert(window.in_line || window.filled == 0);
    held += window.buffer ? 1 : 0;
    in_line += window.in_line ? 1 : 0;
  }
  assert(held == held_ && in_line == count_);
  for (std::size_t i = 0; i < count_; ++i) {
    const Window& window = at(i);
    assert(window.in_line && (i < full_) == window.full());
    // A full window that was read to its end becomes spare, so the line has no such window.
    assert(i >= full_ || window.read < window.filled);
    // The user reads windows in order, so only the first can be partly read.
    assert(i == 0 || window.read == 0);
    // The peer fills windows in order, so those after the current one are empty.
    assert(i <= full_ || window.filled == 0);
    assert(i < static_cast<std::size_t>(count_ - unposted_) || window.filled == 0);
  }
#endif
}

}}}  // namespace conn::rdma
