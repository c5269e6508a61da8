// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The straight path of a message: written bytes are posted as one request without planning a chain,
// and a message that neither begins nor ends a window is counted and read without a look at
// anything else. It is taken only while nothing else is due, and has the same effect as the full
// path. Tests switch it off to compare the two.

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

struct StraightPath {
  /// Whether connections that are created from now on use the straight path.
  static inline bool on = true;
};

}}}  // namespace conn::rdma
