// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Types that describe the use of a list of schemes, rdma|tcp://host:port: which schemes were
// skipped, and why. The library uses a later scheme only if the URL lists it, and always reports
// the reason.

#include <functional>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "conn/error.h"
#include "conn/failure_kind.h"

namespace conn { inline namespace AECONN_ABI {

/// A scheme that was not taken.
struct Skipped {
  std::string scheme;                    ///< the scheme's name
  SkipReason kind = SkipReason::kOther;  ///< the reason as counted
  Failure why;                           ///< the reason as text
};

/// "not rdma: connect to 10.0.0.1:6379: no such device"; several are separated by "; ".
AECONN_API std::string describe(const std::vector<Skipped>& not_taken);

/// Describes a connection established over a scheme other than the preferred one.
struct Fallback {
  std::string to;                  ///< the URL without its options
  std::string taken;               ///< the scheme that carries the connection
  std::vector<Skipped> not_taken;  ///< in the order of the list, all before `taken`
};
/// Runs on the thread of the connection's loop, just before the connection is handed out. It may be
/// called from several threads at once, and must not close connections.
using FallbackHandler = std::function<void(const Fallback&)>;

}}  // namespace conn
