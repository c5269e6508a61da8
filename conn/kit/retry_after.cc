// SPDX-License-Identifier: BSD-3-Clause
#include "conn/kit/retry_after.h"

#include <charconv>

namespace conn { inline namespace AECONN_ABI {
namespace {

constexpr std::string_view kBefore = "try again in ", kAfter = " ms";
constexpr std::chrono::milliseconds kWhenFull{1000}, kInAStorm{100};

}  // namespace

std::string format_retry_after(std::string_view why, std::chrono::milliseconds time) {
  return std::string(why)
      .append("; ")
      .append(kBefore)
      .append(std::to_string(time.count()))
      .append(kAfter);
}

std::string retry_after_when_full() {
  return format_retry_after("max-connections reached", kWhenFull);
}

std::string retry_after_under_overload() {
  return format_retry_after("too many arrive at once", kInAStorm);
}

std::chrono::milliseconds retry_after_in(std::string_view text) noexcept {
  const std::size_t at = text.find(kBefore);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + kBefore.size());
  unsigned count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  const bool good = error == std::errc() && text.starts_with(kAfter) && count <= 3'600'000;
  return std::chrono::milliseconds(good ? count : 0);
}

}}  // namespace conn
