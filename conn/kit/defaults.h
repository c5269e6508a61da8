// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Defaults of options that several transports share. The defaults of max-connections and end-linger
// are in quota.h and end_linger.h. Used by transports; host programs do not need it.

#include <chrono>

#include "ae/abi.h"
#include "ae/time.h"

namespace conn { inline namespace AECONN_ABI { namespace defaults {

inline constexpr int kBacklog = 511;          ///< as Redis; the kernel limits it to somaxconn
inline constexpr unsigned kAcceptBatch = 64;  ///< connections accepted in one iteration
/// Option connect-timeout; each transport's option row says what it covers.
inline constexpr ae::Duration kConnectTimeout = std::chrono::seconds(5);
inline constexpr ae::Duration kLinger = std::chrono::seconds(3);  ///< how long close() may deliver

}}}  // namespace conn::defaults
