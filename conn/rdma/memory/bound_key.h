// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// A memory window and the key it was bound with last. Drivers differ in who keeps ibv_mw::rkey.
struct BoundKey {
  Mw window;
  std::uint32_t rkey = 0;
  ae::TimePoint unused_since{};  ///< zero: nobody has looked
};

}}}  // namespace conn::rdma
