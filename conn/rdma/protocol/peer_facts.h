// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the peer of a stream stated about itself when the connection was set up, in its hello
// (private data of rdma_cm). A peer that sent no hello is assumed to be a Valkey program.

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
  /// The shortest keepalive interval that an end promises its peer. Shorter ones are not promised,
  /// because a busy event loop could not keep them; keepalives may be sent more often than
  /// promised.
  static constexpr ae::Duration kShortestPromise = std::chrono::milliseconds(100);

  void set(const Hello& hello) noexcept {
    sent_hello_ = true;
    flags_ = hello.flags;
    keepalive_ms_ = hello.keepalive_ms;
    receives_ = hello.receives;
    release_ = hello.release;
  }
  bool is_aeconn() const noexcept { return sent_hello_; }
  /// Returns the name and the release of the peer's software, such as "aeconn 0.3.1"; "aeconn" if
  /// the peer sent no release number, "valkey" if it sent no hello (private data).
  std::string kind() const;
  /// Returns true if the peer has announced all the features in `flags` (constants of Hello) when
  /// the connection was set up.
  bool said(std::uint32_t flags) const noexcept { return sent_hello_ && (flags_ & flags) == flags; }
  /// Returns true if the peer counts our posted receives: it stops sending before it exceeds the
  /// number that we announced.
  bool counts_receives() const noexcept { return said(Hello::kTellsReceives); }
  /// Returns true if both ends announce the end of their streams by a message (Hello::kFinishes).
  bool tells_end() const noexcept { return said(Hello::kFinishes); }
  /// Returns the number of posted receives that the peer announced; no value if it announced none.
  std::optional<std::uint32_t> receives() const noexcept;
  /// Returns the keepalive interval that the peer stated when the connection was set up, in
  /// milliseconds.
  std::uint32_t keepalive_ms() const noexcept { return keepalive_ms_; }
  /// Returns the interval at which the peer promised to send keepalives, at least kShortestPromise;
  /// 0: it promised none.
  ae::Duration promise() const noexcept;

 private:
  bool sent_hello_ = false;
  // Members of the peer's hello (private data of rdma_cm) with these names; meaningless if it sent
  // none.
  std::array<std::uint8_t, 3> release_{};
  std::uint32_t flags_ = 0, keepalive_ms_ = 0, receives_ = 0;
};

}}}  // namespace conn::rdma
