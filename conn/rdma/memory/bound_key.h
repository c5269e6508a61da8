// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A memory window (an object of a device that limits a peer's writes to part of a region) and its
// key.

#include <cstdint>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// A memory window and the key (rkey) of its last bind. The key is kept here because drivers differ
/// in whether they or the caller update ibv_mw::rkey.
struct BoundKey {
  Mw window;
  std::uint32_t rkey = 0;
  /// When Domain::tick() first found the key unused; zero: it is in use, or was not checked yet.
  ae::TimePoint unused_since{};
};

}}}  // namespace conn::rdma
