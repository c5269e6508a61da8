// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the peer of a stream stated about itself in its hello. A peer that sent no hello is a
// program of Valkey.

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
  /// The shortest keepalive interval that is promised to a peer, because no loop is more punctual.
  /// Keepalives may be sent more often than promised.
  static constexpr ae::Duration kShortestPromise = std::chrono::milliseconds(100);

  void set(const Hello& hello) noexcept { hello_ = hello; }
  bool is_aeconn() const noexcept { return hello_.has_value(); }
  /// Returns the peer's software with its release, such as "aeconn 0.3.1"; "aeconn" for a release
  /// that does not send its number; "valkey" for a peer without a hello.
  std::string kind() const;
  /// Returns true if the peer sent a hello that has all of `flags` set (constants of Hello).
  bool said(std::uint32_t flags) const noexcept {
    return hello_ && (hello_->flags & flags) == flags;
  }
  /// Returns true if the peer counts our receives: it waits before it would use more than we
  /// announced.
  bool counts_receives() const noexcept { return said(Hello::kTellsReceives); }
  /// Returns the number of receives that the peer announced; no value if it announced none.
  std::optional<std::uint32_t> receives() const noexcept;
  /// Returns the interval at which the peer promised to send keepalives; 0: the peer promised none.
  ae::Duration promise() const noexcept;

 private:
  std::optional<Hello> hello_;
};

}}}  // namespace conn::rdma
