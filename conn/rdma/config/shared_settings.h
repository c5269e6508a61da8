// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The settings of outgoing connections. Connections with the same options share one object, because
// a copy in each of ten thousand connections would use noticeable memory. Accepted connections use
// the settings of their listener.

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <utility>

#include "ae/abi.h"
#include "conn/rdma/config/settings.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// The settings of a loop's outgoing connections. For use on the loop's thread only.
class SharedSettings {
 public:
  /// Returns an object that equals `wanted`: one of the last kKept different objects that were
  /// returned, if one of them is equal, otherwise a new one.
  std::shared_ptr<const Settings> get(Settings wanted) {
    auto found = std::find_if(last_.begin(), last_.end(),
                              [&](const auto& each) { return each != nullptr && *each == wanted; });
    if (found == last_.end()) {
      std::shared_ptr<const Settings> made = std::make_shared<const Settings>(std::move(wanted));
      found = last_.end() - 1;
      *found = std::move(made);
    }
    std::rotate(last_.begin(), found, found + 1);
    return last_.front();
  }

 private:
  static constexpr std::size_t kKept = 8;
  std::array<std::shared_ptr<const Settings>, kKept> last_;  // sorted, most recently used first
};

}}}  // namespace conn::rdma
