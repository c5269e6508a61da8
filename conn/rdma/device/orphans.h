// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Keeps rdma_cm ids whose loop has ended but which the kernel does not release yet:
// rdma_destroy_id() would block the thread that ends the loop until then, 102 s for an iWARP
// connect to a silent peer. These orphans belong to the process and are destroyed when a later
// check finds that they can be, or with the process.

#include <memory>
#include <vector>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "conn/rdma/device/cm.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

struct Orphans {
  std::shared_ptr<CmChannel> channel;  ///< of all these ids; destroyed after them
  std::vector<CmId> connecting;        ///< cannot be destroyed until connect has ended
  std::vector<CmId> parked;            ///< cannot be destroyed until their port is up
  ae::MadeHere made_here{};            ///< in a child of fork() they are the parent's

  bool empty() const noexcept { return connecting.empty() && parked.empty(); }
};

// Any thread.
void adopt(Orphans left) noexcept;
bool any_orphans() noexcept;
/// Destroys those that can be, without blocking. Each loop calls it once a second while there are
/// any.
void look_after_orphans() noexcept;

}}}  // namespace conn::rdma
