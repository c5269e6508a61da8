// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A text that takes milliseconds to make, and that many failures in a burst ask for.

#include <chrono>
#include <mutex>
#include <string>

#include "ae/abi.h"
#include "ae/core/fork.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Keeps a text for one second. May be used from any thread.
class RememberedText {
 public:
  /// Returns the text that was kept, or, if it is older than a second, the one that make() returns
  /// now. Throws what make() throws, and then keeps nothing.
  template <class Make>
  std::string get(Make make) {
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    constexpr std::chrono::seconds kKept(1);
    // until_ may lie further away where the clock of a simulation began anew.
    if (now >= until_ || until_ - now > kKept) {
      text_ = make();
      until_ = now + kKept;
    }
    return text_;
  }

 private:
  ae::Mutex mutex_;
  std::string text_;
  std::chrono::steady_clock::time_point until_{};
};

}}}  // namespace conn::rdma
