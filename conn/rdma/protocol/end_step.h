// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The progress of the end of one connection. Only class Ending changes it. The step and the phase
// of the connection together say what is true:
//
//   step          phase            what is true                            next event
//   kNone         up to kClosing   the queue pair can send and receive     -
//   kStreamOver   kOpen, kClosing  iWARP: the device has ended the queue   rdma_cm's event, or a
//                                  pair, and rdma_cm has not yet said      deadline
//                                  why; nothing is posted
//   kStopQueued   kDisconnecting   the iteration has no time left: the     LoopUser::reap()
//                                  queue pair is stopped in a later one
//   kUntold       kDisconnecting   the queue pair is stopped; no           ESTABLISHED, or a
//                                  disconnect was sent, because rdma_cm    deadline
//                                  does not know the connection yet
//   kTold         kDisconnecting   rdma_disconnect() was called; the peer  DISCONNECTED, or a
//                                  has not answered                        deadline
//   kToReap       kDead            no more is expected from the peer; all  LoopUser::reap()
//                                  objects still exist
//   kQuieting     kDead            the queue pair is stopped, and the      the last completion, or
//                                  device still has completions of it      a deadline
//   kGone         kDead            no rdma_cm or verbs object is left      -
//
// A step may be skipped; no step is repeated.

#include <cstdint>

#include "ae/abi.h"
#include "conn/rdma/protocol/phase.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

enum class EndStep : std::uint8_t {
  kNone,
  kStreamOver,
  kStopQueued,
  kUntold,
  kTold,
  kToReap,
  kQuieting,
  kGone,
};

/// Returns true if step `to` may follow step `from`. Steps only go forward. The device can end a
/// queue pair only before we stop it, and the stop can be queued only before anything else is done.
constexpr bool allowed(EndStep from, EndStep to) {
  using enum EndStep;
  switch (to) {  // no default, so that the compiler warns about a missing step
    case kNone:
      return false;
    case kStreamOver:
      return from == kNone;
    case kStopQueued:
      return from == kNone || from == kStreamOver;
    case kUntold:
      return from == kNone || from == kStreamOver || from == kStopQueued;
    case kTold:
      return from == kUntold;
    case kToReap:
      return from < kToReap;
    case kQuieting:
      return from == kToReap;
    case kGone:
      // kGone may follow any other step, because the end of the loop skips the rest.
      return from != kGone;
  }
  return false;
}
static_assert(!allowed(EndStep::kGone, EndStep::kToReap), "torn down once");

/// Returns true if the step is possible in this phase.
constexpr bool fits(EndStep step, Phase phase) {
  using enum EndStep;
  switch (step) {
    case kNone:
      return phase != Phase::kDisconnecting && phase != Phase::kDead;
    case kStreamOver:
      return phase == Phase::kOpen || phase == Phase::kClosing;
    case kStopQueued:
    case kUntold:
    case kTold:
      return phase == Phase::kDisconnecting;
    case kToReap:
    case kQuieting:
    case kGone:
      return phase == Phase::kDead;
  }
  return false;
}

}}}  // namespace conn::rdma
