// SPDX-License-Identifier: BSD-3-Clause
#include "programs/service/limited_log.h"

#include <fmt/format.h>

#include <chrono>

namespace service {
namespace {

constexpr std::uint64_t kLines = 10;  // per second

}  // namespace

std::int64_t LimitedLog::now() noexcept {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void LimitedLog::add(std::int64_t second, const std::string& line, const Log& log) {
  const std::lock_guard lock(mutex_);
  sum_up_locked(second, log);
  if (++count_ <= kLines && log) log(line);
}

void LimitedLog::sum_up(std::int64_t second, const Log& log) {
  const std::lock_guard lock(mutex_);
  sum_up_locked(second, log);
}

void LimitedLog::sum_up_locked(std::int64_t second, const Log& log) {
  if (second == second_) return;
  second_ = second;
  if (count_ > kLines && log) log(fmt::format("{} more {}", count_ - kLines, what_));
  count_ = 0;
}

}  // namespace service
