// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A TLS connection's entry in the state that its type keeps for the loop (LoopState). After the
// connection has moved to another loop, the entry belongs to the state of that loop.

#include "ae/abi.h"
#include "conn/tls/loop_state.h"
#include "conn/tls/session.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// While the connection holds buffers that an idle connection does not need, it is in a list of
/// such connections, which its loop keeps.
class LoopPlace final : private Warm {
 public:
  LoopPlace(Session& session, LoopState& state) noexcept : session_(session), state_(&state) {}

  /// Returns the state of `loop`, which is the connection's loop. Looks it up only after forget().
  LoopState& state(const ConnectionType& type, ae::EventLoop& loop) {
    if (state_ == nullptr) state_ = &LoopState::of(type, loop);
    return *state_;
  }
  /// Records that the connection is read from or written to.
  void touch() noexcept {
    if (state_ != nullptr) state_->warm(*this);
  }
  /// Takes the connection off the loop's list.
  void leave() noexcept { Warm::unlink(); }
  /// Takes the connection off the loop's list and forgets the loop, which the connection leaves, or
  /// which ends.
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
