// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The windows that the peer has given us to write into: the current one, and those that it
// announced ahead, in order. Their number is limited, whatever the peer sends.

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "ae/abi.h"
#include "conn/rdma/protocol/flow_control.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

using flow::kMostAnnounced;

class PeerWindows {
 public:
  struct Window {
    std::uint64_t address = 0;
    std::uint32_t length = 0, key = 0;
  };

  /// Returns the peer's window that we are writing into. A full window stays current until the peer
  /// announces another. The returned length is 0 if the peer has announced no window yet.
  const Window& current() const noexcept { return windows_[head_]; }
  /// Returns how many bytes we have written into current().
  std::uint32_t used() const noexcept { return used_; }
  std::uint32_t left() const noexcept { return current().length - used_; }
  /// Returns the address, in the peer's memory, at which we write the next byte.
  std::uint64_t position() const noexcept { return current().address + used_; }
  bool any() const noexcept { return current().length != 0; }
  /// Returns how many windows the peer has announced to follow the current one.
  std::size_t ahead() const noexcept { return ahead_; }

  /// Makes `window` the current window and drops all others; nothing more is written into the
  /// dropped windows.
  void replace(const Window& window) noexcept {
    windows_[head_] = window;
    used_ = 0;
    ahead_ = 0;
  }
  /// Adds `window` behind the other windows, or in place of the current window if that is full and
  /// no other follows. Returns false, and adds nothing, if there are kMostAnnounced windows
  /// already.
  [[nodiscard]] bool append(const Window& window) noexcept {
    if (left() == 0) {
      replace(window);
      return true;
    }
    if (ahead_ + 1u == kMostAnnounced) return false;
    windows_[(head_ + ++ahead_) % kMostAnnounced] = window;
    return true;
  }
  /// Records that `length` more bytes were written into the current window. Returns true if that
  /// window is now full; the next window, if there is one, is then the current one.
  bool use(std::uint32_t length) noexcept {
    assert(length <= left());
    used_ += length;
    if (left() != 0) return false;
    if (ahead_ != 0) {
      head_ = static_cast<std::uint8_t>((head_ + 1u) % kMostAnnounced);
      --ahead_;
      used_ = 0;
    }
    return true;
  }
  /// Like use(), for fewer bytes than left().
  void use_some(std::uint32_t length) noexcept {
    assert(length < left());
    used_ += length;
  }
  void check() const { assert(used_ <= current().length && ahead_ < kMostAnnounced); }

 private:
  std::array<Window, kMostAnnounced> windows_;
  std::uint32_t used_ = 0;
  std::uint8_t head_ = 0, ahead_ = 0;
};

}}}  // namespace conn::rdma
