// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Keeps rdma_cm ids ("orphans") whose event loop was destroyed before the kernel could release
// them. rdma_destroy_id() would block the thread that destroys the loop: for example for 102 s if
// an iWARP connect to a silent peer is in progress. Orphans belong to the process. A periodic check
// destroys each of them as soon as that does not block, and the kernel releases the rest when the
// process ends.

#include <memory>
#include <vector>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "conn/rdma/device/cm.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

struct Orphans {
  /// Event channel of the ids in both vectors. It is declared before them, so that it is destroyed
  /// after them.
  std::shared_ptr<CmChannel> channel;
  std::vector<CmId> connecting;  ///< ids that can be destroyed once their connect has ended
  std::vector<CmId> parked;      ///< ids that can be destroyed once their port is up
  /// Detects that this process is a child of fork(), where the ids belong to the parent.
  ae::MadeHere made_here{};

  bool empty() const noexcept { return connecting.empty() && parked.empty(); }
};

// Takes over the rdma_cm ids in `left` from an event loop that ends, and destroys them later.
// Thread-safe.
void adopt(Orphans left) noexcept;
bool any_orphans() noexcept;
/// Destroys those orphans that can be destroyed without blocking. Each loop calls this once a
/// second while any_orphans() is true.
void look_after_orphans() noexcept;

}}}  // namespace conn::rdma
