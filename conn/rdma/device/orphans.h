// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Keeps rdma_cm ids whose event loop was destroyed before the kernel was ready to release them.
// rdma_destroy_id() would block the thread that destroys the loop until then: for 102 s if an iWARP
// connect to a silent peer is in progress. These orphans belong to the process: a periodic check
// destroys each as soon as that does not block, and the kernel releases the rest when the process
// ends.

#include <memory>
#include <vector>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "conn/rdma/device/cm.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

struct Orphans {
  /// Event channel of the ids in both vectors; destroyed after them.
  std::shared_ptr<CmChannel> channel;
  std::vector<CmId> connecting;  ///< ids that cannot be destroyed until their connect has ended
  std::vector<CmId> parked;      ///< ids that cannot be destroyed until their port is up
  /// Detects that this process is a child of fork(), where the ids belong to the parent.
  ae::MadeHere made_here{};

  bool empty() const noexcept { return connecting.empty() && parked.empty(); }
};

// Takes over the rdma_cm ids in `left`, whose event loop ends, to destroy them later. Thread-safe.
void adopt(Orphans left) noexcept;
bool any_orphans() noexcept;
/// Destroys the orphans that can be destroyed without blocking. Each loop calls this once a second
/// while any_orphans().
void look_after_orphans() noexcept;

}}}  // namespace conn::rdma
