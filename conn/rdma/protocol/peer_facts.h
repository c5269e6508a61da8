// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the peer of a stream said of itself in its hello. Without a hello it is a program of Valkey.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/protocol/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class PeerFacts {
 public:
  /// Keepalives may be sent more often, but a shorter interval is not promised to the peer: no loop
  /// is that punctual.
  static constexpr ae::Duration kShortestPromise = std::chrono::milliseconds(100);

  void set(const Hello& hello) noexcept { hello_ = hello; }
  bool is_aeconn() const noexcept { return hello_.has_value(); }
  /// "aeconn 0.3.1"; "aeconn" for a release that does not send its number; "valkey" without a
  /// hello.
  std::string kind() const;
  /// It has all of these flags (Hello).
  bool said(std::uint32_t flags) const noexcept {
    return hello_ && (hello_->flags & flags) == flags;
  }
  /// It waits before it would use more receives than were announced to it.
  bool counts_receives() const noexcept { return said(Hello::kTellsReceives); }
  /// The receives that it announced, if it did.
  std::optional<std::uint32_t> receives() const noexcept;
  /// The interval of the keepalives that it promised; 0: it promised none.
  ae::Duration promise() const noexcept;

 private:
  std::optional<Hello> hello_;
};

}}}  // namespace conn::rdma
