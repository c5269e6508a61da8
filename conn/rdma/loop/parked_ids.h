// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Keeps ("parks") rdma_cm ids that cannot be destroyed yet because rdma_destroy_id() would block
// the loop: those whose port is down, and on iWARP those whose connect has not ended. An id is
// parked at the end of its connection, and stays here until it can be destroyed. Call reserve() for
// each connection, so that parking its id later allocates no memory.

#include <cstddef>
#include <vector>

#include "ae/abi.h"
#include "conn/rdma/device/cm.h"
#include "conn/rdma/device/device.h"
#include "conn/rdma/device/orphans.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class ParkedIds {
 public:
  /// Reserves capacity for the rdma_cm ids of `connections` connections, in addition to those that
  /// are kept here already.
  void reserve(std::size_t connections);
  /// Keeps the rdma_cm id until its port is up again or the device is lost.
  void park(CmId id) noexcept { keep(parked_, std::move(id)); }
  /// Keeps the rdma_cm id until rdma_cm has reported that its connect has succeeded or failed: on
  /// iWARP rdma_destroy_id() blocks until then.
  void park_connecting(CmId id) noexcept { keep(connecting_, std::move(id)); }
  bool empty() const noexcept { return parked_.empty() && connecting_.empty(); }
  /// Returns true if the greatest number of rdma_cm ids that can be kept here is reached. The
  /// caller then makes no new connections.
  bool full() const noexcept;

  /// Returns true if one of the rdma_cm ids kept here can be destroyed without blocking. `ports`:
  /// the device if some of its ports are down; null if all ids can be destroyed because all ports
  /// are up or the device is lost.
  bool may_release(const Device* ports) const noexcept;
  /// Destroys one of the rdma_cm ids kept here that can be destroyed without blocking. Call it only
  /// if may_release(ports) is true.
  void release_one(const Device* ports) noexcept;
  /// Handles an rdma_cm event of an id that has no owner: if it ends the connect of an id that is
  /// kept here until then, destroys that id.
  void on_event(const CmEvent& event) noexcept;
  /// Moves all rdma_cm ids to `to`; call it before the loop is destroyed. If there is no memory for
  /// that, the ids stay here, and destroying them blocks.
  void give_up(Orphans& to) noexcept;

 private:
  static void keep(std::vector<CmId>& list, CmId id) noexcept {
    if (list.size() < list.capacity()) list.push_back(std::move(id));
  }
  std::vector<CmId> parked_, connecting_;
};

}}}  // namespace conn::rdma
