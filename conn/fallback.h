// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One place that can be reached in several ways: rdma|tcp://host:port. What is told of a way that
// was not taken. The library takes a later way only where the URL lists it, and always says why.

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

/// Kinds of reasons why a way was not taken, as they are counted.
enum class SkipReason : std::uint8_t {
  kUnavailable,  ///< not in this build, or not in this program
  kNoDevice,     ///< this machine, or its network namespace, has no device for it
  kUnreachable,  ///< no route, or the link is down
  kRefused,      ///< the peer answered that nobody listens there
  kTimedOut,     ///< no answer in time
  kSlower,       ///< another way was ready first
  kOther,        ///< anything else: a certificate, a limit, a protocol
};
inline constexpr std::size_t kWhyNots = 7;  ///< so many kinds
/// "fallback_no_device": what counts it in statistics().
AECONN_API std::string_view counter_of(SkipReason kind) noexcept;
/// What a failure's code counts as.
AECONN_API SkipReason kind_of(const std::error_code& code) noexcept;
using FallbackCounts = std::array<std::uint64_t, kWhyNots>;  ///< one for each kind

/// A way that was not taken.
struct Skipped {
  std::string scheme;                    ///< the way's
  SkipReason kind = SkipReason::kOther;  ///< as it is counted
  Failure why;                           ///< in words
};

/// "not rdma: connect to 10.0.0.1:6379: no such device"; several are separated by "; ".
AECONN_API std::string describe(const std::vector<Skipped>& not_taken);

/// What happened where a connection stands by another way than the preferred one.
struct Fallback {
  std::string to;                  ///< the URL without its options
  std::string taken;               ///< the scheme that carries the connection
  std::vector<Skipped> not_taken;  ///< in the order they were written, all before `taken`
};
/// Runs on the thread of the connection's loop, right before it is handed out. It may be called
/// from several threads at once, and must not close connections.
using FallbackHandler = std::function<void(const Fallback&)>;

}}  // namespace conn
