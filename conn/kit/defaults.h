// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Default values of options that several transports share. The defaults of max-connections and
// end-linger are in quota.h and end_linger.h. Used by transports; host programs do not need it.

#include <chrono>

#include "ae/abi.h"
#include "ae/time.h"

namespace conn { inline namespace AECONN_ABI { namespace defaults {

/// Default backlog of listeners, as in Redis; the kernel limits it to somaxconn.
inline constexpr int kBacklog = 511;
/// Default number of connections that are accepted in one iteration.
inline constexpr unsigned kAcceptBatch = 64;
/// Default of option connect-timeout. The option's row of each transport says what the time covers.
inline constexpr ae::Duration kConnectTimeout = std::chrono::seconds(5);
/// Default of option linger: how long close() may continue to deliver.
inline constexpr ae::Duration kLinger = std::chrono::seconds(3);

}}}  // namespace conn::defaults
