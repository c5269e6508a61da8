// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/protocol/peer_facts.h"

#include <fmt/format.h>

#include <algorithm>

namespace conn { inline namespace AECONN_ABI { namespace rdma {

std::string PeerFacts::kind() const {
  if (!sent_hello_) return "valkey";
  const auto& [major, minor, patch] = release_;
  if (major == 0 && minor == 0 && patch == 0) return "aeconn";
  return fmt::format("aeconn {}.{}.{}", major, minor, patch);
}

std::optional<std::uint32_t> PeerFacts::receives() const noexcept {
  if (!counts_receives()) return std::nullopt;
  return receives_;
}

ae::Duration PeerFacts::promise() const noexcept {
  if (!said(Hello::kSendsKeepalives) || keepalive_ms_ == 0) return ae::Duration::zero();
  return std::max<ae::Duration>(std::chrono::milliseconds(keepalive_ms_), kShortestPromise);
}

}}}  // namespace conn::rdma
