// SPDX-License-Identifier: BSD-3-Clause
#include "conn/failure_kind.h"

#include <cerrno>

namespace conn { inline namespace AECONN_ABI {

std::string_view counter_of(SkipReason kind) noexcept {
  switch (kind) {
    case SkipReason::kUnavailable:
      return "fallback_unavailable";
    case SkipReason::kNoDevice:
      return "fallback_no_device";
    case SkipReason::kUnreachable:
      return "fallback_unreachable";
    case SkipReason::kRefused:
      return "fallback_refused";
    case SkipReason::kTimedOut:
      return "fallback_timed_out";
    case SkipReason::kSlower:
      return "fallback_slower";
    case SkipReason::kOther:
      return "fallback_other";
  }
  return "?";
}

SkipReason kind_of(const std::error_code& code) noexcept {
  const bool system = code.category() == std::system_category();
  const bool own = system || code.category() == std::generic_category();
  const std::error_condition condition = code.default_error_condition();
  if (!system && condition.category() != std::generic_category()) return SkipReason::kOther;
  switch (condition.category() == std::generic_category() ? condition.value() : code.value()) {
    case ENODEV:
    case ENXIO:
      return SkipReason::kNoDevice;
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
    case EHOSTDOWN:
    case EADDRNOTAVAIL:
      return SkipReason::kUnreachable;
    case ECONNREFUSED:
      return SkipReason::kRefused;
    case ENOENT:  // as an errno value, ENOENT says that a Unix socket's file does not exist
      return own ? SkipReason::kRefused : SkipReason::kOther;
    case ETIMEDOUT:
      return SkipReason::kTimedOut;
    default:
      return SkipReason::kOther;
  }
}

}}  // namespace conn
