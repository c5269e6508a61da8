// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Agreement of the two ends, in their hellos, on the path MTU. A device refuses a packet that is
// shorter than the path MTU unless it is the last of a message, so both ends must use the same
// value. rdma_cm by itself uses the value of the connecting side at both ends. If both ends use
// this library, they use the minimum of both values and of their options path-mtu. On iWARP no MTU
// is agreed.

#include <cstdint>
#include <string>

#include "ae/abi.h"
#include "conn/rdma/device/cm.h"
#include "conn/rdma/device/fabric.h"
#include "conn/rdma/device/route.h"
#include "conn/rdma/protocol/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class Mtu {
 public:
  // Parameters of all functions: `id` must have resolved its route; `fabric` contains the option
  // path-mtu.
  /// Connecting side: determines the MTU that is offered to the peer.
  void offer(const rdma_cm_id* id, const Fabric& fabric) noexcept;
  /// Connecting side: determines the MTU from `answer`, the MTU in the peer's answer; 0 if the peer
  /// sent none. Throws VerbsError if the option path-mtu requires an MTU that the peer has not
  /// agreed to.
  void take_answer(const rdma_cm_id* id, const Fabric& fabric, std::uint8_t answer);
  /// Accepting side: determines the MTU from `asked`, the MTU in the peer's request (0 if the peer
  /// sent none), and `here`, the MTU of the local port. `device`: name of the local device, for
  /// error messages. Throws VerbsError if the peer sent no MTU and its MTU does not fit.
  void agree(const rdma_cm_id* id, const Fabric& fabric, std::uint8_t asked, ibv_mtu here,
             const std::string& device);

  /// Writes the MTU that our request offers, or that our answer states, into our hello.
  void tell(Hello& hello) const noexcept;
  /// Returns the agreed MTU; 0 if none was agreed, so that the MTU that rdma_cm has chosen applies.
  ibv_mtu agreed() const noexcept { return agreed_; }

 private:
  ibv_mtu agreed_{};
  ibv_mtu stated_{};  // the MTU in our hello; 0: it contains none
};

}}}  // namespace conn::rdma
