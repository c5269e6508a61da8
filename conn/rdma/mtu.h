// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Agreement of the two ends on the path MTU, in their hellos (private data of rdma_cm). A device
// refuses a packet that is shorter than the path MTU unless it is the last of a message, so both
// ends must use the same value. rdma_cm by itself uses the value of the connecting side at both
// ends. If both ends use this library, they use the minimum of both values and of their options
// path-mtu. On iWARP no MTU is agreed.

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
  // Parameters of the next functions: the route of the rdma_cm id `id` must be resolved; `fabric`
  // contains the option path-mtu.
  /// Connecting side: determines the MTU that is offered to the peer.
  void offer(const rdma_cm_id* id, const Fabric& fabric) noexcept;
  /// Connecting side: determines the MTU from `answer`, the MTU in the peer's answer; 0 if the peer
  /// sent none. Throws VerbsError if the option path-mtu requires an MTU that the peer has not
  /// agreed to.
  void take_answer(const rdma_cm_id* id, const Fabric& fabric, std::uint8_t answer);
  /// Accepting side: determines the MTU from `asked`, the MTU in the peer's request (0 if the peer
  /// sent none), and `here`, the MTU of the local port. `device`: name of the local device, for
  /// error messages. Throws VerbsError if the peer sent none and the MTU that rdma_cm has chosen
  /// exceeds `here` or the option path-mtu.
  void agree(const rdma_cm_id* id, const Fabric& fabric, std::uint8_t asked, ibv_mtu here,
             const std::string& device);

  /// Writes the MTU that our request offers, or that our answer states, into our hello (the private
  /// data of the request or answer).
  void tell(Hello& hello) const noexcept;
  /// Returns the agreed MTU; 0 if none was agreed, so that the MTU that rdma_cm has chosen applies.
  ibv_mtu agreed() const noexcept { return agreed_; }

 private:
  ibv_mtu agreed_{};
  ibv_mtu stated_{};  // the MTU that our private data states; 0: none
};

}}}  // namespace conn::rdma
