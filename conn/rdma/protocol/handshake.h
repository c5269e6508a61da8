// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What rdma_cm knows of one connection. rdma_cm may lag behind the queue pair: data may arrive
// before rdma_cm has read the peer's last message of the handshake.
//
//   state       what is true                                          next state
//   kNone       rdma_connect() or rdma_accept() was not called        kUnderWay
//   kUnderWay   one of them was called, and no event has reported     kAnswered, kKnown, kGone
//               its end; on iWARP rdma_destroy_id() would block
//   kAnswered   an event has reported its end; not established yet    kKnown, kGone
//   kKnown      established for rdma_cm: rdma_disconnect() reaches    kGone
//               the peer
//   kGone       the peer is known to be gone; it will not answer      -
//   any         the rdma_cm id is destroyed                           kNone

#include <cstdint>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

enum class Handshake : std::uint8_t { kNone, kUnderWay, kAnswered, kKnown, kGone };

constexpr bool allowed(Handshake from, Handshake to) {
  using enum Handshake;
  if (to == kNone) return true;
  if (to == kUnderWay) return from == kNone;
  if (to == kAnswered) return from == kUnderWay;
  return from < to;
}
static_assert(!allowed(Handshake::kGone, Handshake::kKnown), "the peer does not come back");

}}}  // namespace conn::rdma
