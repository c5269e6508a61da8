// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/device/reject_reason.h"

#include <cstdint>

namespace conn { inline namespace AECONN_ABI { namespace rdma {

// The reason that an aeconn server gives when it rejects. The data may be anything, so only plain
// text is shown.
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
