// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The state of a connection's queue pair. Only PairState changes it.
//
//   state         what is true                                        next state
//   kNone         there is no queue pair                              kMade
//   kMade         INIT: receives are posted                           kConnected, kDiscarded
//   kConnected    RTS, or about to be: work may be posted             kStopped
//   kDiscarded    put into its error state before it was connected    -
//   kStopped      put into its error state; the device may still      -
//                 report completions of earlier work: see Link::quiet()
//   any           destroyed                                           kNone

#include <cassert>
#include <cstdint>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class PairState {
 public:
  enum class At : std::uint8_t { kNone, kMade, kConnected, kDiscarded, kStopped };

  static constexpr bool allowed(At from, At to) {
    using enum At;
    switch (to) {  // no default, so that the compiler warns about a missing state
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
  /// Returns true if the queue pair can be stopped; the state that it then has is after_stop().
  bool can_stop() const noexcept { return at_ == At::kMade || at_ == At::kConnected; }
  At after_stop() const noexcept { return was_connected() ? At::kStopped : At::kDiscarded; }
  bool stopped() const noexcept { return at_ == At::kStopped; }

  /// Records that the device has reported, with event LAST_WQE_REACHED, that the stopped queue pair
  /// takes no more receives from the shared receive queue.
  void on_last_receive() noexcept { last_receive_ = true; }
  bool took_last_receive() const noexcept { return last_receive_; }

 private:
  At at_ = At::kNone;
  bool last_receive_ = false;
};

}}}  // namespace conn::rdma
