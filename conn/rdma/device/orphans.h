// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// rdma_cm ids whose loop has ended and which the kernel does not let go yet: rdma_destroy_id()
// would hold up whoever ends the loop until then, 102 s for an iWARP connect to a silent peer. They
// are the process's, and go when a later look finds that they may, or with the process.

#include <memory>
#include <vector>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "conn/rdma/device/cm.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

struct Orphans {
  std::shared_ptr<CmChannel> channel;  ///< of all of them; they go before it
  std::vector<CmId> connecting;        ///< until rdma_cm has said how their connect ended
  std::vector<CmId> parked;            ///< until their port is up
  ae::MadeHere made_here{};            ///< in a child of fork() they are its parent's

  bool empty() const noexcept { return connecting.empty() && parked.empty(); }
};

// Any thread.
void adopt(Orphans left) noexcept;
bool any_orphans() noexcept;
/// Lets go of those that may go, without waiting. Each loop does it once a second while there are
/// some.
void look_after_orphans() noexcept;

}}}  // namespace conn::rdma
