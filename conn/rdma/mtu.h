// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The agreement of both ends on the MTU of their packets, by their hellos. A device refuses packets
// that are shorter than the path's MTU unless they end a message, so both ends need the same.
// rdma_cm uses the connecting side's for both; if both ends use this library, it is the minimum of
// both ends' values and of their options (path-mtu). Not for iWARP.

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
  // `id` has its path; `fabric` has the option.
  /// Connecting: what is offered to the peer.
  void offer(const rdma_cm_id* id, const Fabric& fabric) noexcept;
  /// Connecting: the peer's answer, 0 if it has none. Throws VerbsError.
  void take_answer(const rdma_cm_id* id, const Fabric& fabric, std::uint8_t answer);
  /// Accepting: `asked` is the peer's offer, 0 if it has none; `here` is what the port can do, and
  /// `device` names it. Throws VerbsError.
  void agree(const rdma_cm_id* id, const Fabric& fabric, std::uint8_t asked, ibv_mtu here,
             const std::string& device);

  /// Puts the offer or the answer into our hello.
  void tell(Hello& hello) const noexcept;
  /// 0: that of rdma_cm.
  ibv_mtu agreed() const noexcept { return agreed_; }

 private:
  ibv_mtu agreed_{};
  ibv_mtu told_{};  // 0: none
};

}}}  // namespace conn::rdma
