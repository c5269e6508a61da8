// SPDX-License-Identifier: BSD-3-Clause
#include "conn/fallback.h"

#include <cerrno>

namespace conn { inline namespace AECONN_ABI {

std::string_view counter_of(WhyNot kind) noexcept {
  switch (kind) {
    case WhyNot::kUnavailable:
      return "fallback_unavailable";
    case WhyNot::kNoDevice:
      return "fallback_no_device";
    case WhyNot::kUnreachable:
      return "fallback_unreachable";
    case WhyNot::kRefused:
      return "fallback_refused";
    case WhyNot::kTimedOut:
      return "fallback_timed_out";
    case WhyNot::kSlower:
      return "fallback_slower";
    case WhyNot::kOther:
      return "fallback_other";
  }
  return "?";
}

WhyNot kind_of(const std::error_code& code) noexcept {
  const bool system = code.category() == std::system_category();
  const std::error_condition condition = code.default_error_condition();
  if (!system && condition.category() != std::generic_category()) return WhyNot::kOther;
  switch (condition.category() == std::generic_category() ? condition.value() : code.value()) {
    case ENODEV:
    case ENXIO:
      return WhyNot::kNoDevice;
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
    case EHOSTDOWN:
    case EADDRNOTAVAIL:
      return WhyNot::kUnreachable;
    case ECONNREFUSED:
    case ENOENT:  // the file of a Unix socket
      return WhyNot::kRefused;
    case ETIMEDOUT:
      return WhyNot::kTimedOut;
    default:
      return WhyNot::kOther;
  }
}

std::string describe(const std::vector<NotTaken>& not_taken) {
  std::string text;
  for (const NotTaken& each : not_taken) {
    if (!text.empty()) text += "; ";
    text.append("not ").append(each.scheme).append(": ").append(each.why.text);
  }
  return text;
}

}}  // namespace conn
