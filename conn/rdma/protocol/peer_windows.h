// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The windows that the peer has given us to write into: the current one, and those that it
// announced ahead, in order. Their number is limited, whatever the peer sends. Memory for the
// windows ahead is allocated when the peer first announces one.

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "ae/abi.h"
#include "conn/rdma/protocol/flow_control.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

using flow::kMostAnnounced;

class PeerWindows {
 public:
  /// What append() returns if memory is lacking.
  static constexpr char kNoMemory[] = "no memory for the windows that the peer announces";

  struct Window {
    std::uint64_t address = 0;
    std::uint32_t length = 0, key = 0;
  };

  PeerWindows() = default;
  /// Begins with no window; `written` bytes count as written before.
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
  /// Adds `window` behind the other windows, or in place of the current window if that is full and
  /// no other follows. Returns null, or a text that says why it has added nothing: there are
  /// kMostAnnounced windows already, or memory is lacking.
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
  /// Frees the memory for windows ahead, if there are none.
  void trim() noexcept {
    if (ahead_ == 0) next_.reset();
  }
  /// Records that `length` more bytes were written into the current window. Returns true if that
  /// window is now full; the next window, if there is one, is then the current one.
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
  /// Like use(), for fewer bytes than left().
  void use_some(std::uint32_t length) noexcept {
    assert(length < left());
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
  // The ahead_ windows that follow, a ring in *next_ that begins at head_.
  std::uint8_t head_ = 0, ahead_ = 0;
  std::uint64_t before_ = 0;  // bytes written into windows before current_
  std::unique_ptr<Ahead> next_;
};

}}}  // namespace conn::rdma
