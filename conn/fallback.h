// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Types that describe the use of a list of schemes, rdma|tcp://host:port: which schemes were
// skipped, and why. The library uses a later scheme only if the URL lists it, and always reports
// why the earlier ones were skipped.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "conn/error.h"

namespace conn { inline namespace AECONN_ABI {

/// Reasons why a scheme of a list was skipped, as the counters distinguish them.
enum class SkipReason : std::uint8_t {
  kUnavailable,  ///< the scheme is not in this build, or not in this program
  kNoDevice,     ///< this machine, or its network namespace, has no device for the scheme
  kUnreachable,  ///< there is no route to the peer, or the link is down
  kRefused,      ///< the peer answered that it does not listen there
  kTimedOut,     ///< the peer did not answer before the time-out
  kSlower,       ///< another scheme was ready first
  kOther,        ///< any other reason: a certificate, a limit, a protocol
};
inline constexpr std::size_t kSkipReasons = 7;  ///< number of values of SkipReason
/// Returns the name of the counter for `kind` in statistics(), for example "fallback_no_device".
AECONN_API std::string_view counter_of(SkipReason kind) noexcept;
/// Returns the reason as which an error code is counted.
AECONN_API SkipReason kind_of(const std::error_code& code) noexcept;
/// One counter for each SkipReason.
using FallbackCounts = std::array<std::uint64_t, kSkipReasons>;

/// A scheme of a list that was skipped.
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
