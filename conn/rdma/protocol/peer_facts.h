// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the peer of a stream stated about itself in its hello. A peer that sent no hello is a
// program of Valkey.

#include <array>
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

  void set(const Hello& hello) noexcept {
    sent_hello_ = true;
    flags_ = hello.flags;
    keepalive_ms_ = hello.keepalive_ms;
    receives_ = hello.receives;
    release_ = hello.release;
  }
  bool is_aeconn() const noexcept { return sent_hello_; }
  /// Returns the peer's software with its release, such as "aeconn 0.3.1"; "aeconn" for a release
  /// that does not send its number; "valkey" for a peer without a hello.
  std::string kind() const;
  /// Returns true if the peer sent a hello that has all of `flags` set (constants of Hello).
  bool said(std::uint32_t flags) const noexcept { return sent_hello_ && (flags_ & flags) == flags; }
  /// Returns true if the peer counts our receives: it waits before it would use more than we
  /// announced.
  bool counts_receives() const noexcept { return said(Hello::kTellsReceives); }
  /// Returns true if both ends tell each other where their streams end (Hello::kFinishes).
  bool tells_end() const noexcept { return said(Hello::kFinishes); }
  /// Returns the number of receives that the peer announced; no value if it announced none.
  std::optional<std::uint32_t> receives() const noexcept;
  /// Returns what the peer's hello stated as the interval of its keepalives, in milliseconds.
  std::uint32_t keepalive_ms() const noexcept { return keepalive_ms_; }
  /// Returns the interval at which the peer promised to send keepalives; 0: the peer promised none.
  ae::Duration promise() const noexcept;

 private:
  bool sent_hello_ = false;
  // The members of the peer's hello that have these names; of no meaning without a hello.
  std::array<std::uint8_t, 3> release_{};
  std::uint32_t flags_ = 0, keepalive_ms_ = 0, receives_ = 0;
};

}}}  // namespace conn::rdma
