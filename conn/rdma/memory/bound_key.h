// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A memory window and its key.

#include <cstdint>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// A memory window and the key of its last bind, kept here because drivers differ in who updates
/// ibv_mw::rkey.
struct BoundKey {
  Mw window;
  std::uint32_t rkey = 0;
  ae::TimePoint unused_since{};  ///< zero: not checked yet
};

}}}  // namespace conn::rdma
