// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The receive windows of the peer, which are parts of its memory that we may write into: the
// current one, and those that follow it ("ahead"), in order. There are at most kMostAnnounced, so a
// peer cannot make us use more memory. Memory for the windows ahead is allocated when the peer
// first announces one.

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "ae/abi.h"
#include "ae/hot_assert.h"
#include "conn/rdma/protocol/flow_control.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

using flow::kMostAnnounced;

class PeerWindows {
 public:
  /// The text that append() returns if memory cannot be allocated.
  static constexpr char kNoMemory[] = "no memory for the windows that the peer announces";

  struct Window {
    std::uint64_t address = 0;
    std::uint32_t length = 0, key = 0;
  };

  PeerWindows() = default;
  /// Begins without a window of the peer. `written`: number of bytes of the stream that were
  /// written before; total() includes them.
  explicit PeerWindows(std::uint64_t written) noexcept : before_(written) {}
  PeerWindows(const PeerWindows& other)
      : current_(other.current_),
        used_(other.used_),
        head_(other.head_),
        ahead_(other.ahead_),
        before_(other.before_),
        next_(other.next_ != nullptr ? std::make_unique<Ahead>(*other.next_) : nullptr) {}
  PeerWindows(PeerWindows&&) = default;
  PeerWindows& operator=(PeerWindows&&) = default;
  ~PeerWindows() = default;

  /// Returns the peer's window that we are writing into. A full window stays current until the peer
  /// announces another. The returned length is 0 if the peer has announced no window yet.
  const Window& current() const noexcept { return current_; }
  /// Returns how many bytes we have written into current().
  std::uint32_t used() const noexcept { return used_; }
  std::uint32_t left() const noexcept { return current().length - used_; }
  /// Returns how many bytes we have written into the peer's windows in total.
  std::uint64_t total() const noexcept { return before_ + used_; }
  /// Returns the address, in the peer's memory, at which we write the next byte.
  std::uint64_t position() const noexcept { return current().address + used_; }
  bool any() const noexcept { return current().length != 0; }
  /// Returns how many windows the peer has announced to follow the current one.
  std::size_t ahead() const noexcept { return ahead_; }

  /// Makes `window` the current window and drops all others; nothing more is written into the
  /// dropped windows.
  void replace(const Window& window) noexcept {
    current_ = window;
    before_ += std::exchange(used_, 0u);
    ahead_ = 0;
  }
  /// Adds `window` after the other windows, or replaces the current window if that one is full and
  /// no other follows. Returns null; or, if it has added nothing, a text that says why: there are
  /// kMostAnnounced windows already, or no memory.
  [[nodiscard]] const char* append(const Window& window) noexcept {
    if (left() == 0) {
      replace(window);
      return nullptr;
    }
    if (ahead_ == kMostAhead) return "the peer announced more windows than it may";
    if (next_ == nullptr) next_.reset(new (std::nothrow) Ahead);
    if (next_ == nullptr) return kNoMemory;
    (*next_)[(head_ + ahead_) % kMostAhead] = window;
    ++ahead_;
    return nullptr;
  }
  /// Frees the memory that describes the windows after the current one, if there is no such window.
  void trim() noexcept {
    if (ahead_ == 0) next_.reset();
  }
  /// Records that `length` more bytes, at most left(), were written into the current window.
  /// Returns true if this filled the window; the next window, if there is one, then becomes the
  /// current one.
  bool use(std::uint32_t length) noexcept {
    assert(length <= left());
    used_ += length;
    if (left() != 0) return false;
    if (ahead_ != 0) {
      current_ = (*next_)[head_];
      head_ = static_cast<std::uint8_t>((head_ + 1u) % kMostAhead);
      --ahead_;
      before_ += std::exchange(used_, 0u);
    }
    return true;
  }
  /// Records that `length` more bytes were written into the current window; `length` must be less
  /// than left(), so that the window does not become full.
  void use_some(std::uint32_t length) noexcept {
    AECONN_HOT_ASSERT(length < left());
    used_ += length;
  }
  void check() const {
    assert(used_ <= current().length && ahead_ <= kMostAhead);
    assert(ahead_ == 0 || next_ != nullptr);
  }

 private:
  static constexpr std::size_t kMostAhead = kMostAnnounced - 1;
  using Ahead = std::array<Window, kMostAhead>;

  Window current_;
  std::uint32_t used_ = 0;
  // Ring buffer *next_ of the windows that follow current_: index of the first one, and their
  // number.
  std::uint8_t head_ = 0, ahead_ = 0;
  std::uint64_t before_ = 0;  // offset in the stream of the first byte in current_
  std::unique_ptr<Ahead> next_;
};

}}}  // namespace conn::rdma
