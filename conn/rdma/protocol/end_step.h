// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The steps in which one connection ends. Only class Ending changes the current step. What is true
// in each step, together with the phase of the connection:
//
//   step          phase            what holds                              ends with
//   kNone         up to kClosing   the queue pair can send and receive     -
//   kStreamOver   kOpen to         iWARP: the device has ended the queue   rdma_cm's event, or a
//                 kClosing         pair, and rdma_cm has not reported the  deadline
//                                  reason yet; nothing is posted
//   kStopQueued   kDisconnecting   this iteration has no time left; the    LoopConnection::reap()
//                                  queue pair is stopped in a later one
//   kUnsent       kDisconnecting   the queue pair is stopped; the peer is  ESTABLISHED, or a
//                                  not informed, because for rdma_cm the   deadline
//                                  connection is not established yet
//   kSent         kDisconnecting   rdma_disconnect() was called; the peer  DISCONNECTED, or a
//                                  has not answered                        deadline
//   kToReap       kDead            no answer of the peer is expected;      LoopConnection::reap()
//                                  all objects still exist
//   kQuieting     kDead            the queue pair is stopped, and the      the last completion, or
//                                  device has not reported all of its      a deadline
//                                  completions
//   kGone         kDead            no rdma_cm or verbs object is left      -
//
// Steps may be skipped, but no step is repeated.

#include <cstdint>

#include "ae/abi.h"
#include "conn/rdma/protocol/phase.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

enum class EndStep : std::uint8_t {
  kNone,
  kStreamOver,
  kStopQueued,
  kUnsent,
  kSent,
  kToReap,
  kQuieting,
  kGone,
};

/// Returns true if step `to` may follow step `from`. Steps only go forward.
constexpr bool allowed(EndStep from, EndStep to) {
  using enum EndStep;
  switch (to) {  // has no default, so that the compiler warns about a missing step
    case kNone:
      return false;
    case kStreamOver:
      return from == kNone;
    case kStopQueued:
      return from == kNone || from == kStreamOver;
    case kUnsent:
      return from == kNone || from == kStreamOver || from == kStopQueued;
    case kSent:
      return from == kUnsent;
    case kToReap:
      return from < kToReap;
    case kQuieting:
      return from == kToReap;
    case kGone:
      // kGone may follow any other step: when the event loop is destroyed, the steps in between are
      // skipped.
      return from != kGone;
  }
  return false;
}
static_assert(!allowed(EndStep::kGone, EndStep::kToReap), "torn down once");

/// Returns true if a connection in this phase may be at this step of its end.
constexpr bool fits(EndStep step, Phase phase) {
  using enum EndStep;
  switch (step) {
    case kNone:
      return phase != Phase::kDisconnecting && phase != Phase::kDead;
    case kStreamOver:
      return phase == Phase::kOpen || phase == Phase::kHalfClosed || phase == Phase::kClosing;
    case kStopQueued:
    case kUnsent:
    case kSent:
      return phase == Phase::kDisconnecting;
    case kToReap:
    case kQuieting:
    case kGone:
      return phase == Phase::kDead;
  }
  return false;
}

}}}  // namespace conn::rdma
