// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How the two ends agree, in their hellos, on the MTU of their packets. A device refuses a packet
// that is shorter than the path's MTU unless it ends a message, so both ends must use the same MTU.
// rdma_cm alone uses the connecting side's value for both ends. If both ends use this library, they
// take the minimum of both ends' values and of their options path-mtu. On iWARP no MTU is agreed.

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
  // Parameters of all functions: `id` must have its route already; `fabric` holds option path-mtu.
  /// Connecting side: determines the MTU that is offered to the peer.
  void offer(const rdma_cm_id* id, const Fabric& fabric) noexcept;
  /// Connecting side: takes the peer's answer, or 0 if the peer sent none. Throws VerbsError if
  /// option path-mtu cannot be obeyed without an answer.
  void take_answer(const rdma_cm_id* id, const Fabric& fabric, std::uint8_t answer);
  /// Accepting side: determines the MTU from the peer's offer `asked` (0 if the peer sent none) and
  /// from `here`, the MTU of the local port. `device` names the local device in error messages.
  /// Throws VerbsError if the peer cannot be told to use a suitable MTU.
  void agree(const rdma_cm_id* id, const Fabric& fabric, std::uint8_t asked, ibv_mtu here,
             const std::string& device);

  /// Writes our offer (connecting side) or answer (accepting side) of an MTU into our hello.
  void tell(Hello& hello) const noexcept;
  /// Returns the agreed MTU; 0 if none was agreed: the MTU that rdma_cm chose then applies.
  ibv_mtu agreed() const noexcept { return agreed_; }

 private:
  ibv_mtu agreed_{};
  ibv_mtu stated_{};  // the MTU that our hello states to the peer; 0: it states none
};

}}}  // namespace conn::rdma
