// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// rdma_cm ids that cannot be destroyed yet because the kernel would block the loop: those whose
// port is down, and on iWARP those whose connect has not ended. An id is here from the end of its
// connection until it is destroyed. reserve() is called for each connection, so that parking its id
// needs no memory.

#include <cstddef>
#include <vector>

#include "ae/abi.h"
#include "conn/rdma/device/cm.h"
#include "conn/rdma/device/device.h"
#include "conn/rdma/device/orphans.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class ParkedIds {
 public:
  /// Reserves capacity for the ids of that many connections besides those that are here.
  void reserve(std::size_t connections);
  /// Keeps the id until its port is up again or the device is lost.
  void park(CmId id) noexcept { keep(parked_, std::move(id)); }
  /// Keeps the id until rdma_cm has reported the end of its connect: on iWARP rdma_destroy_id()
  /// blocks until then.
  void park_connecting(CmId id) noexcept { keep(connecting_, std::move(id)); }
  bool empty() const noexcept { return parked_.empty() && connecting_.empty(); }
  /// The limit of parked ids is reached, so no connections are made.
  bool full() const noexcept;

  /// An id can be destroyed. `ports`: the device, of whose ports some are down; null if the ports
  /// do not matter: all are up, or the device is lost.
  bool may_release(const Device* ports) const noexcept;
  /// Destroys one; only if may_release().
  void release_one(const Device* ports) noexcept;
  /// An event arrived for an id without an owner. If it ends the connect of one of these, that id
  /// is destroyed.
  void on_event(const CmEvent& event) noexcept;
  /// The loop ends: all ids move to `to`. Without memory for that they stay, and their destruction
  /// blocks.
  void give_up(Orphans& to) noexcept;

 private:
  static void keep(std::vector<CmId>& list, CmId id) noexcept {
    if (list.size() < list.capacity()) list.push_back(std::move(id));
  }
  std::vector<CmId> parked_, connecting_;
};

}}}  // namespace conn::rdma
