// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Connection state of one RDMA connection. Only Stage changes it.
//
//   from             to                when
//   kIdle            kResolving        connect()
//   kIdle            kAccepting        CONNECT_REQUEST, queue pair created, rdma_accept called
//   kResolving       kConnecting       address and route resolved, queue pair created, rdma_connect
//   kConnecting      kResolving        this address failed, another is left to try
//   kConnecting      kOpen             the peer's answer, queue pair ready, rdma_establish
//   kAccepting       kOpen             ESTABLISHED, or the peer's first message before it
//   kOpen            kClosing          close() by the user, bytes still to deliver
//   kOpen, kClosing, kAccepting, kConnecting
//                    kDisconnecting    failure, or everything delivered; rdma_disconnect is called
//                                      at once, or in a later iteration that has time for it
//                                      (IterationBudget::has_share_left())
//   any              kDead             no rdma_cm or verbs object is left, and none will come back
//
//   in phase         id    queue pair   work may be posted   handlers may run
//   kIdle            no    no           no                   no
//   kResolving       yes   no           no                   no
//   kConnecting      yes   INIT         receives             no
//   kAccepting       yes   RTS          receives             no
//   kOpen            yes   RTS          yes                  yes
//   kClosing         yes   RTS          yes                  no
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
  kClosing,
  kDisconnecting,
  kDead
};

constexpr bool allowed(Phase from, Phase to) {
  using enum Phase;
  switch (from) {  // no default, so that the compiler warns about a missing phase
    case kIdle:
      return to == kResolving || to == kAccepting || to == kDead;
    case kResolving:
      return to == kConnecting || to == kDead;
    case kConnecting:
      return to == kResolving || to == kOpen || to == kDisconnecting || to == kDead;
    case kAccepting:
      return to == kOpen || to == kDisconnecting || to == kDead;
    case kOpen:
      return to == kClosing || to == kDisconnecting || to == kDead;
    case kClosing:
      return to == kDisconnecting || to == kDead;
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
    case kClosing:
      return "closing";
    case kDisconnecting:
      return "disconnecting";
    case kDead:
      return "dead";
  }
  return "?";
}

}}}  // namespace conn::rdma
