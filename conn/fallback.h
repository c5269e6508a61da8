// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Types that describe the use of a list of schemes, rdma|tcp://host:port: which schemes were
// skipped, and why. The library uses a later scheme only if the URL lists it, and always reports
// why the earlier ones were skipped.

#include <functional>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "conn/error.h"
#include "conn/failure_kind.h"

namespace conn { inline namespace AECONN_ABI {

/// A scheme that was not taken.
struct Skipped {
  std::string scheme;                    ///< name of the scheme
  SkipReason kind = SkipReason::kOther;  ///< the reason as the counters distinguish it
  Failure why;                           ///< the reason as an error code and text
};

/// Describes skipped schemes: "not rdma: connect to 10.0.0.1:6379: no such device"; several are
/// separated by "; ".
AECONN_API std::string describe(const std::vector<Skipped>& not_taken);

/// Describes a connection that was established over another scheme than the first of its list.
struct Fallback {
  std::string to;     ///< the URL without its options
  std::string taken;  ///< the scheme that carries the connection
  /// The skipped schemes, in the order of the list, all before `taken`.
  std::vector<Skipped> not_taken;
};
/// Called for each connection that was established over another scheme than the first of its list,
/// on the thread of its loop, just before the program gets the connection. It may be called from
/// several threads at once, and must not close connections.
using FallbackHandler = std::function<void(const Fallback&)>;

}}  // namespace conn
