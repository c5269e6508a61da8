// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The kinds of failure that counters distinguish: of failed attempts to connect, and of schemes of
// a list that were skipped.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <system_error>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// Categories of the reasons why a scheme of a list of schemes was skipped, for counters.
enum class SkipReason : std::uint8_t {
  kUnavailable,  ///< the scheme is not in this build, or not in this program
  kNoDevice,     ///< this machine, or its network namespace, has no device for the scheme
  kUnreachable,  ///< there is no route to the peer, or the link is down
  kRefused,      ///< the peer answered that it does not listen there
  kTimedOut,     ///< the peer did not answer before the time-out
  kSlower,       ///< a connection over another scheme of the list was ready first
  kOther,        ///< any other reason: a certificate, a limit, a protocol
};
inline constexpr std::size_t kSkipReasons = 7;  ///< number of enumerators of SkipReason
/// Returns the name of the counter for `kind` in statistics(), for example "fallback_no_device".
AECONN_API std::string_view counter_of(SkipReason kind) noexcept;
/// Returns the SkipReason under which the counters count a failure with this error code.
AECONN_API SkipReason kind_of(const std::error_code& code) noexcept;
/// Number of occurrences of each SkipReason, indexed by its value.
using FallbackCounts = std::array<std::uint64_t, kSkipReasons>;

}}  // namespace conn
