// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The phases (states) of one RDMA connection. Only class Stage changes the phase.
//
//   from             to                when
//   kIdle            kResolving        connect()
//   kIdle            kAccepting        CONNECT_REQUEST, queue pair created, rdma_accept called
//   kResolving       kConnecting       address and route resolved, queue pair created, rdma_connect
//   kConnecting      kResolving        this address failed, and another one may be tried
//   kConnecting      kOpen             the peer's answer, queue pair ready, rdma_establish
//   kAccepting       kOpen             ESTABLISHED, or a message or resume request before it
//   kOpen            kHalfClosed       shutdown() by the user: written bytes are delivered, then
//                                      the end of the stream; the peer's bytes still arrive
//   kOpen, kHalfClosed
//                    kClosing          close() by the user: bytes, or the end of the stream, must
//                                      still be delivered
//   kOpen, kHalfClosed, kClosing, kResending, kAccepting, kConnecting
//                    kDisconnecting    failure, or everything delivered; rdma_disconnect is called
//                                      at once, or in a later iteration that has time for it
//                                      (IterationBudget::has_share_left())
//   kOpen, kHalfClosed, kClosing, kResending
//                    kLost             the network path failed, and the connection can continue
//                                      over another one (conn/rdma/session.h)
//   kLost            kResolving        connecting side: the next attempt to find a new path
//   kLost            kAccepting        accepting side: the peer's request for a new path
//   kResolving, kConnecting, kAccepting
//                    kLost             an attempt to find a new path failed
//   kConnecting, kAccepting
//                    kResending        there is a new path; unsent bytes from before go first
//   kResending       kOpen, kHalfClosed, kClosing
//                                      those bytes are in the send buffer: the phase becomes that
//                                      from before the loss
//   any              kDead             the end: rdma_cm and verbs objects are only destroyed
//
//   in phase         id    queue pair   work may be posted   handlers may run
//   kIdle            no    no           no                   no
//   kResolving       yes   no           no                   no
//   kConnecting      yes   INIT         receives             no
//   kAccepting       yes   RTS          receives             no
//   kOpen            yes   RTS          yes                  yes
//   kHalfClosed      yes   RTS          yes                  yes
//   kClosing         yes   RTS          yes                  no
//   kResending       yes   RTS          yes                  yes
//   kLost            both or neither    no                   yes
//                    (QP in ERR)
//   kDisconnecting   yes   RTS, ERR     no                   to collect bytes and the error
//   kDead            no    no           no                   to collect bytes and the error

#include <cstdint>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

enum class Phase : std::uint8_t {
  kIdle,
  kResolving,
  kConnecting,
  kAccepting,
  kOpen,
  kHalfClosed,
  kClosing,
  kResending,
  kLost,
  kDisconnecting,
  kDead
};

constexpr bool allowed(Phase from, Phase to) {
  using enum Phase;
  switch (from) {  // has no default, so that the compiler warns about a missing phase
    case kIdle:
      return to == kResolving || to == kAccepting || to == kDead;
    case kResolving:
      return to == kConnecting || to == kLost || to == kDead;
    case kConnecting:
      return to == kResolving || to == kOpen || to == kResending || to == kLost ||
             to == kDisconnecting || to == kDead;
    case kAccepting:
      return to == kOpen || to == kResending || to == kLost || to == kDisconnecting || to == kDead;
    case kOpen:
      return to == kHalfClosed || to == kClosing || to == kLost || to == kDisconnecting ||
             to == kDead;
    case kHalfClosed:
      return to == kClosing || to == kLost || to == kDisconnecting || to == kDead;
    case kClosing:
      return to == kLost || to == kDisconnecting || to == kDead;
    case kResending:
      return to == kOpen || to == kHalfClosed || to == kClosing || to == kLost ||
             to == kDisconnecting || to == kDead;
    case kLost:
      return to == kResolving || to == kAccepting || to == kDead;
    case kDisconnecting:
      return to == kDead;
    case kDead:
      return false;
  }
  return false;
}
static_assert(!allowed(Phase::kDead, Phase::kOpen), "death is final");

constexpr const char* to_string(Phase phase) {
  using enum Phase;
  switch (phase) {
    case kIdle:
      return "idle";
    case kResolving:
      return "resolving";
    case kConnecting:
      return "connecting";
    case kAccepting:
      return "accepting";
    case kOpen:
      return "open";
    case kHalfClosed:
      return "half-closed";
    case kClosing:
      return "closing";
    case kResending:
      return "resending";
    case kLost:
      return "lost";
    case kDisconnecting:
      return "disconnecting";
    case kDead:
      return "dead";
  }
  return "?";
}

}}}  // namespace conn::rdma
