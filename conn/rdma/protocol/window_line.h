// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Receive windows (memory that the peer writes into) in the order in which the peer fills them and
// the user reads them. The first window is the oldest one; only this one can be partly read. The
// line stores pointers: the caller owns the records, which must not move while they are in the
// line.

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "ae/abi.h"
#include "conn/rdma/protocol/window_record.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class WindowLine {
 public:
  /// The greatest number of receive windows that a WindowLine can contain.
  static constexpr std::size_t kSlots = 8;

  // --- windows in the line -----------------------------------------------------------------------
  std::size_t count() const noexcept { return count_; }
  /// Returns the receive window at index `place`: 0 is the first, count() - 1 the last.
  WindowRecord& at(std::size_t place) noexcept { return *windows_[place]; }
  const WindowRecord& at(std::size_t place) const noexcept { return *windows_[place]; }
  /// Adds a window after all others. There must be fewer than kSlots windows before the call.
  void append(WindowRecord& window) noexcept {
    assert(count_ < kSlots);
    windows_[count_++] = &window;
  }
  /// Removes the window at index `place`; the indices of those after it decrease by one.
  void remove(std::size_t place) noexcept {
    assert(place < count_);
    std::copy(windows_.begin() + static_cast<std::ptrdiff_t>(place) + 1, windows_.begin() + count_,
              windows_.begin() + static_cast<std::ptrdiff_t>(place));
    --count_;
  }
  /// If `instead` is one of the windows, replaces it by `window` at the same index.
  void substitute(const WindowRecord& instead, WindowRecord& window) noexcept {
    for (std::size_t i = 0; i < count_; ++i)
      if (windows_[i] == &instead) windows_[i] = &window;
  }

  // --- bytes that the user has not read ----------------------------------------------------------
  bool has_unread() const noexcept { return count_ != 0 && at(0).unread() != 0; }
  std::uint64_t unread_bytes() const noexcept {
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < count_; ++i) total += at(i).unread();
    return total;
  }
  /// Returns the number of unread bytes that were copied out of the memory of a network path, its
  /// receive windows, when the path was lost (WindowRecord::left_over).
  std::uint32_t left_over() const noexcept {
    return count_ != 0 && at(0).left_over ? at(0).unread() : 0;
  }
  /// Returns the unread bytes in the first window, which are the oldest ones; empty if there are
  /// none.
  std::span<std::byte> unread() const noexcept {
    if (count_ == 0) return {};
    return {at(0).buffer.data + at(0).read, at(0).unread()};
  }
  /// Sets the elements of `pieces` to the memory of the oldest unread bytes, one piece for each
  /// window, as many as fit. Returns the number of pieces.
  std::size_t peek(std::span<std::span<const std::byte>> pieces) const noexcept {
    std::size_t found = 0;
    for (std::size_t i = 0; i < count_ && found < pieces.size(); ++i) {
      const WindowRecord& window = at(i);
      if (window.unread() == 0) break;
      pieces[found++] = {window.buffer.data + window.read, window.unread()};
    }
    return found;
  }
  /// Copies all unread bytes to `into`, which must have space for unread_bytes() bytes.
  void copy_unread(std::byte* into) const noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
      const std::size_t size = at(i).unread();
      if (size != 0) std::memcpy(into, at(i).buffer.data + at(i).read, size);
      into += size;
    }
  }

 private:
  std::array<WindowRecord*, kSlots> windows_{};
  std::uint8_t count_ = 0;
};

}}}  // namespace conn::rdma
