// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The place of a TLS connection in the state of its loop, which is another one after a move.

#include "ae/abi.h"
#include "conn/tls/loop_state.h"
#include "conn/tls/session.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// While the connection holds buffers that an idle connection does not need, it is in the loop's
/// list of such connections.
class LoopPlace final : private Warm {
 public:
  LoopPlace(Session& session, LoopState& state) noexcept : session_(session), state_(&state) {}

  /// The state of this loop, which is looked up only after forget().
  LoopState& state(const ConnectionType& type, ae::EventLoop& loop) {
    if (state_ == nullptr) state_ = &LoopState::of(type, loop);
    return *state_;
  }
  /// The connection is read from or written to.
  void touch() noexcept {
    if (state_ != nullptr) state_->warm(*this);
  }
  /// Leaves the list.
  void leave() noexcept { Warm::unlink(); }
  /// As leave(), and the loop is left, or ends.
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
