// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Defaults of the options that several transports have, one for all of them. Those of
// max-connections and end-linger are with what they are about: quota.h, end_linger.h. Used by
// transports; host programs do not need it.

#include <chrono>

#include "ae/abi.h"
#include "ae/time.h"

namespace conn { inline namespace AECONN_ABI { namespace defaults {

inline constexpr int kBacklog = 511;          ///< as Redis; the kernel caps it at somaxconn
inline constexpr unsigned kAcceptBatch = 64;  ///< connections accepted in one iteration
/// Of option connect-timeout; what it covers, each transport's row says.
inline constexpr ae::Duration kConnectTimeout = std::chrono::seconds(5);
inline constexpr ae::Duration kLinger = std::chrono::seconds(3);  ///< close() may deliver so long

}}}  // namespace conn::defaults
