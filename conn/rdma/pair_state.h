// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The states of a connection's queue pair. Only class PairState changes the state.
//
//   state         what is true                                        next state
//   kNone         there is no queue pair                              kMade
//   kMade         INIT: receives are posted                           kConnected, kDiscarded
//   kConnected    RTS, or about to be: requests may be posted         kStopped
//   kDiscarded    moved to the error state before it was connected    -
//   kStopped      moved to the error state; the device may still      -
//                 report completions of earlier requests (Link::quiet())
//   any           the queue pair is destroyed                         kNone

#include <cassert>
#include <cstdint>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class PairState {
 public:
  enum class At : std::uint8_t { kNone, kMade, kConnected, kDiscarded, kStopped };

  static constexpr bool allowed(At from, At to) {
    using enum At;
    switch (to) {  // has no default, so that the compiler warns about a missing state
      case kNone:
        return true;
      case kMade:
        return from == kNone;
      case kConnected:
      case kDiscarded:
        return from == kMade;
      case kStopped:
        return from == kConnected;
    }
    return false;
  }

  At at() const noexcept { return at_; }
  void move(At next) noexcept {
    assert(allowed(at_, next));
    at_ = next;
    if (next == At::kNone) last_receive_ = false;
  }
  bool was_connected() const noexcept { return at_ == At::kConnected || at_ == At::kStopped; }
  /// Returns true if the queue pair can be stopped, which means moved to the error state;
  /// after_stop() returns the state of this object after that.
  bool can_stop() const noexcept { return at_ == At::kMade || at_ == At::kConnected; }
  At after_stop() const noexcept { return was_connected() ? At::kStopped : At::kDiscarded; }
  bool stopped() const noexcept { return at_ == At::kStopped; }

  /// Call for the event LAST_WQE_REACHED: the stopped queue pair takes no more receives from the
  /// shared receive queue.
  void on_last_receive() noexcept { last_receive_ = true; }
  bool took_last_receive() const noexcept { return last_receive_; }

 private:
  At at_ = At::kNone;
  bool last_receive_ = false;
};

}}}  // namespace conn::rdma
