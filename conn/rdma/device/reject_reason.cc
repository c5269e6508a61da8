// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/device/reject_reason.h"

#include <cstdint>

namespace conn { inline namespace AECONN_ABI { namespace rdma {

// Other servers than ours may send any data, so the text ends before the first byte that is not
// printable ASCII.
std::string reject_reason_in(std::span<const std::byte> data) {
  std::string text;
  for (const std::byte each : data) {
    const auto c = static_cast<char>(each);
    if (c < ' ' || c > '~') break;
    text += c;
  }
  return text.empty() ? text : ": " + text;
}

void reject(rdma_cm_id* request, std::string_view why) noexcept {
  why = why.substr(0, 100);
  (void)rdma_reject(request, why.data(), static_cast<std::uint8_t>(why.size()));
}

}}}  // namespace conn::rdma
