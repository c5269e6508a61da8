// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A TLS connection's entry in the state that its type keeps for the loop (LoopState). After the
// connection has moved to another loop, the entry belongs to the state of that loop.

#include "ae/abi.h"
#include "conn/tls/loop_state.h"
#include "conn/tls/session.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// Keeps the connection in its loop's list of recently used connections. Those hold buffers that an
/// idle connection does not need and that the loop releases later.
class LoopPlace final : private Warm {
 public:
  LoopPlace(Session& session, LoopState& state) noexcept : session_(session), state_(&state) {}

  /// Returns the TLS state of `loop`, the connection's loop. Looks it up only after forget();
  /// otherwise returns the state that this object remembers.
  LoopState& state(const ConnectionType& type, ae::EventLoop& loop) {
    if (state_ == nullptr) state_ = &LoopState::of(type, loop);
    return *state_;
  }
  /// Records that the connection is used now, so that its buffers are not released soon.
  void touch() noexcept {
    if (state_ != nullptr) state_->warm(*this);
  }
  /// Returns the loop's buffer for the ciphertext of many records; empty after forget().
  std::span<char> room() const noexcept {
    return state_ != nullptr ? state_->room() : std::span<char>();
  }
  /// Removes the connection from its loop's list of recently used connections.
  void leave() noexcept { Warm::unlink(); }
  /// Removes the connection from its loop's list of recently used ones and forgets the loop's
  /// state: the connection leaves the loop, or the loop ends.
  void forget() noexcept {
    leave();
    state_ = nullptr;
  }

 private:
  void cool() override { session_.engine().release_buffers(); }

  Session& session_;
  LoopState* state_;
};

}}}  // namespace conn::tls
