// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Default values of options that several transports share. The defaults of max-connections and
// end-linger are in quota.h and end_linger.h. Used by transports; host programs do not need it.

#include <chrono>

#include "ae/abi.h"
#include "ae/time.h"

namespace conn { inline namespace AECONN_ABI { namespace defaults {

/// Default backlog of a listening socket, as in Redis. The kernel limits it to the value of
/// somaxconn.
inline constexpr int kBacklog = 511;
/// Default limit on the connections that a listener accepts in one iteration of the loop.
inline constexpr unsigned kAcceptBatch = 64;
/// Default of option connect-timeout. The description of the option in each transport's table says
/// what the time covers.
inline constexpr ae::Duration kConnectTimeout = std::chrono::seconds(5);
/// Default of option linger: how long a closed connection may continue to deliver its data.
inline constexpr ae::Duration kLinger = std::chrono::seconds(3);

}}}  // namespace conn::defaults
