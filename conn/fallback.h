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

/// A scheme of a list of schemes (such as "rdma|tcp") that was not used for a connection.
struct Skipped {
  std::string scheme;                    ///< name of the skipped scheme
  SkipReason kind = SkipReason::kOther;  ///< category of the reason, for counters
  Failure why;                           ///< the reason, as an error code and text
};

/// Describes skipped schemes: "not rdma: connect to 10.0.0.1:6379: no such device"; several are
/// separated by "; ".
AECONN_API std::string describe(const std::vector<Skipped>& not_taken);

/// Reports that a connection uses another scheme than the first one of its list.
struct Fallback {
  std::string to;     ///< URL that the program connected to, without its options
  std::string taken;  ///< the scheme that carries the connection
  /// The schemes of the list before `taken`, in order, each with the reason why it was skipped.
  std::vector<Skipped> not_taken;
};
/// Called for each connection that was established over another scheme than the first of its list,
/// on the thread of its loop, just before the program gets the connection. It may be called from
/// several threads at once, and must not close connections.
using FallbackHandler = std::function<void(const Fallback&)>;

}}  // namespace conn
