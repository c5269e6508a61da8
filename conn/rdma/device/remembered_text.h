// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A cache for one text that takes milliseconds to compute and that is needed for each failure in a
// burst of failures.

#include <chrono>
#include <mutex>
#include <string>

#include "ae/abi.h"
#include "ae/core/fork.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Keeps a text for one second. May be used from any thread.
class RememberedText {
 public:
  /// Returns the cached text or, if it is older than a second, the result of make(), which is then
  /// cached. Throws what make() throws, and then caches nothing.
  template <class Make>
  std::string get(Make make) {
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    constexpr std::chrono::seconds kKept(1);
    // until_ is more than kKept away only if a simulation has set its clock back.
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
