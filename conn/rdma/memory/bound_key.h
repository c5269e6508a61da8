// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A memory window and its key. A memory window is an object of the device that limits a peer's
// writes to a part of a memory region.

#include <cstdint>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// A memory window and the key (rkey) of its last bind. The key is stored here because some drivers
/// update ibv_mw::rkey and others do not.
struct BoundKey {
  Mw window;
  std::uint32_t rkey = 0;
  /// Time at which Domain::tick() first found the key unused; zero: it is in use, or was not
  /// checked yet.
  ae::TimePoint unused_since{};
};

}}}  // namespace conn::rdma
