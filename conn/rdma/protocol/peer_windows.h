// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The windows a peer has given us to write into: the one that is written, and those it announced
// ahead, in their order. Room for a fixed number, whatever the peer says.

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

  /// The one that is written. It stays when it is full, until there is another.
  const Window& current() const noexcept { return windows_[head_]; }
  std::uint32_t used() const noexcept { return used_; }  ///< of it
  std::uint32_t left() const noexcept { return current().length - used_; }
  bool any() const noexcept { return current().length != 0; }
  /// Those after it.
  std::size_t ahead() const noexcept { return ahead_; }

  /// Nothing is written any more into those that were there.
  void replace(const Window& window) noexcept {
    windows_[head_] = window;
    used_ = 0;
    ahead_ = 0;
  }
  /// False: there are as many as there may be.
  [[nodiscard]] bool append(const Window& window) noexcept {
    if (left() == 0) {
      replace(window);
      return true;
    }
    if (ahead_ + 1u == kMostAnnounced) return false;
    windows_[(head_ + ++ahead_) % kMostAnnounced] = window;
    return true;
  }
  /// So many more bytes were written into the current one. True: it is full, and if there is
  /// another that is the current one now.
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
  void check() const { assert(used_ <= current().length && ahead_ < kMostAnnounced); }

 private:
  std::array<Window, kMostAnnounced> windows_;
  std::uint32_t used_ = 0;
  std::uint8_t head_ = 0, ahead_ = 0;
};

}}}  // namespace conn::rdma
