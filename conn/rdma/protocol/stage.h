// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The progress of one connection: its phase (such as open or closing), and what rdma_cm knows of
// it. Both change only as their tables allow (conn/rdma/protocol/phase.h and handshake.h).

#include <cassert>

#include "ae/abi.h"
#include "conn/rdma/protocol/handshake.h"
#include "conn/rdma/protocol/phase.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class Stage {
 public:
  Phase phase() const noexcept { return phase_; }
  void move(Phase next) noexcept {
    assert(allowed(phase_, next));
    phase_ = next;
  }
  bool connecting() const noexcept {
    return phase_ == Phase::kResolving || phase_ == Phase::kConnecting;
  }
  /// Returns true if work requests may be posted and data of the peer may arrive.
  bool open() const noexcept {
    return phase_ == Phase::kOpen || phase_ == Phase::kHalfClosed || phase_ == Phase::kClosing ||
           phase_ == Phase::kResending;
  }
  /// Returns true if the connection is open and close() has not begun.
  bool in_use() const noexcept {
    return phase_ == Phase::kOpen || phase_ == Phase::kHalfClosed || phase_ == Phase::kResending;
  }
  bool ended() const noexcept { return phase_ == Phase::kDisconnecting || phase_ == Phase::kDead; }

  Handshake handshake() const noexcept { return handshake_; }
  /// Changes the handshake state to `next` if the table in handshake.h allows that; otherwise does
  /// nothing.
  void advance(Handshake next) noexcept {
    if (allowed(handshake_, next)) handshake_ = next;
  }

 private:
  Phase phase_ = Phase::kIdle;
  Handshake handshake_ = Handshake::kNone;
};

}}}  // namespace conn::rdma
