// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Types that describe the use of a list of schemes, rdma|tcp://host:port: which schemes were
// skipped, and why. The library uses a later scheme only if the URL lists it, and always reports
// the reason.

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

/// Reasons why a scheme was not taken, as the counters distinguish them.
enum class SkipReason : std::uint8_t {
  kUnavailable,  ///< not in this build, or not in this program
  kNoDevice,     ///< this machine, or its network namespace, has no device for it
  kUnreachable,  ///< no route, or the link is down
  kRefused,      ///< the peer answered that it does not listen there
  kTimedOut,     ///< no answer before the time-out
  kSlower,       ///< another scheme was ready first
  kOther,        ///< any other reason: a certificate, a limit, a protocol
};
inline constexpr std::size_t kSkipReasons = 7;  ///< number of reasons
/// The name of its counter in statistics(), for example "fallback_no_device".
AECONN_API std::string_view counter_of(SkipReason kind) noexcept;
/// The reason that an error code is counted as.
AECONN_API SkipReason kind_of(const std::error_code& code) noexcept;
using FallbackCounts = std::array<std::uint64_t, kSkipReasons>;  ///< one counter for each reason

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
