// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Our receive windows of one stream, in the order in which the peer fills them:
//
//     [ full, being read ][ full ]   [ filled ..... ][ announced ][ to be announced ]
//       front                          current                      last
//
// and beside the line those that are spare: read to their end, or not needed yet. How many there
// are to be and how long, Stream decides; nothing here is said by the peer without Stream's check.

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ae/abi.h"
#include "ae/time.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Memory of ours that the peer may write once it is offered. The stream borrows it from
/// provide_window() until take_discarded() or take_any() returns it. The peer may claim bytes that
/// it never wrote: what is in there before must be zeros, never the bytes of another connection.
struct WindowBuffer {
  std::byte* data = nullptr;
  std::uint32_t length = 0;
  std::uint64_t address = 0;  ///< as the peer names it
  std::uint32_t key = 0;      ///< rkey
  void* owner = nullptr;      ///< whatever the provider needs to know it again
  explicit operator bool() const noexcept { return data != nullptr; }
};

class WindowLine {
 public:
  static constexpr std::size_t kSlots = 8;

  struct Window {
    WindowBuffer buffer;  // no data: the slot is free
    std::uint32_t filled = 0, read = 0;
    std::uint32_t end = 0;  // what the peer will fill; the buffer's length, or less if it left it
    std::uint64_t announced_by = 0;  // which message of ours told the peer
    ae::TimePoint announced_at{}, first_at{};
    std::uint32_t first = 0;  // so many bytes came first, at first_at
    bool in_line = false;
    bool full() const noexcept { return filled == end; }
  };

  // --- how many ----------------------------------------------------------------------------------
  std::size_t held() const noexcept { return held_; }    ///< spare ones included
  std::size_t count() const noexcept { return count_; }  ///< in line
  std::size_t full() const noexcept { return full_; }    ///< of these, full and not read to the end
  bool has_spare() const noexcept { return held_ != count_; }
  /// The peer has them, or will, and does not fill or leave them before all others.
  std::size_t outstanding() const noexcept { return count_ - (leaving() ? leave_ : full_); }
  std::uint64_t bytes() const noexcept;
  /// Length of the longest that is outstanding; 0: none is.
  std::uint32_t longest_outstanding() const noexcept;

  // --- memory comes and goes ---------------------------------------------------------------------
  /// To the end of the line, to be announced. There is a free slot.
  void add(const WindowBuffer& buffer) noexcept;
  /// Another in place of the last, which was not announced.
  void replace_last(const WindowBuffer& buffer) noexcept;
  /// The same with a spare one of this length, or of any (0). False: there is none.
  bool add_spare(std::uint32_t length) noexcept;
  bool has_spare_of(std::uint32_t length) const noexcept { return find_spare(length) != kSlots; }
  /// A spare one of another length, or of any (0). Empty: there is none.
  WindowBuffer take_spare_but(std::uint32_t length) noexcept;
  /// Nothing but `unread`, in one piece; it has been read when it is empty.
  void become(std::span<std::byte> unread) noexcept;

  // --- telling the peer --------------------------------------------------------------------------
  bool to_announce() const noexcept { return unposted_ != 0; }
  const WindowBuffer& next_to_announce() const noexcept { return at(count_ - unposted_).buffer; }
  /// The peer has another that is not full.
  bool next_is_ahead() const noexcept { return count_ - unposted_ > full_; }
  /// Those before it are to be left for it.
  bool next_is_marked() const noexcept { return leaving() && count_ - unposted_ == leave_; }
  void announced(std::uint64_t message, ae::TimePoint now) noexcept;
  /// None of them waits to be announced: ask for no more.
  void announce_nothing() noexcept;

  // --- the peer writes ---------------------------------------------------------------------------
  /// The one the peer writes, or null.
  const Window* current() const noexcept {
    if (full_ >= count_ - unposted_ || full_ == leave_) return nullptr;
    return &at(full_);
  }
  /// So many bytes, no more than it has room for, are in it. True: it is full now.
  bool fill(std::uint32_t length, ae::TimePoint now) noexcept {
    Window& window = at(full_);
    assert(length <= window.end - window.filled);
    if (window.filled == 0) {
      window.first = length;
      window.first_at = now;
    }
    window.filled += length;
    if (!window.full()) return false;
    ++full_;
    return true;
  }
  /// The next to be added is to be used although those before are not full.
  void leave() noexcept { leave_ = static_cast<std::uint8_t>(count_); }
  bool leaving() const noexcept { return leave_ != kNotLeaving; }
  /// The peer has left them; what it wrote can be read.
  void left() noexcept;

  // --- the user reads ----------------------------------------------------------------------------
  bool has_unread() const noexcept { return count_ != 0 && at(0).read < at(0).filled; }
  std::uint64_t unread_bytes() const noexcept;
  /// The oldest that were not read, as far as they are in one piece.
  std::span<std::byte> unread() const noexcept {
    if (count_ == 0) return {};
    const Window& window = at(0);
    return {window.buffer.data + window.read, window.filled - window.read};
  }
  /// The oldest pieces of them, as many as `pieces` has room for; how many there are.
  std::size_t peek(std::span<std::span<const std::byte>> pieces) const noexcept;
  /// The first so many of these were read. True: that was the end of a window.
  bool consume(std::size_t size) noexcept {
    if (size == 0) return false;
    Window& window = at(0);
    assert(size <= window.filled - window.read);
    window.read += static_cast<std::uint32_t>(size);
    if (full_ == 0 || window.read != window.filled) return false;
    remove(0);
    return true;
  }
  void copy_unread(std::byte* into) const noexcept;

  void check() const;

 private:
  static constexpr std::uint8_t kNotLeaving = 0xff;
  Window& at(std::size_t place) noexcept { return windows_[line_[place]]; }
  const Window& at(std::size_t place) const noexcept { return windows_[line_[place]]; }
  std::size_t find_spare(std::uint32_t length) const noexcept;
  void append(std::size_t slot) noexcept;
  void remove(std::size_t place) noexcept;

  std::array<Window, kSlots> windows_;
  std::array<std::uint8_t, kSlots> line_{};  // slots, the oldest first
  std::uint8_t held_ = 0, count_ = 0;
  std::uint8_t full_ = 0;             // the first so many of the line
  std::uint8_t unposted_ = 0;         // the last so many of it were not announced
  std::uint8_t leave_ = kNotLeaving;  // the first so many are to be left
};

}}}  // namespace conn::rdma
