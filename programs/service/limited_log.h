// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Rate limit for log lines that peers can cause in any number: ten lines per second, then the number
// of suppressed ones.

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace service {

/// Thread-safe. Seconds may come from any clock.
class LimitedLog {
 public:
  using Log = std::function<void(const std::string&)>;
  /// `what` completes the line "N more WHAT": "refused", for example.
  explicit LimitedLog(std::string_view what) : what_(what) {}

  /// Returns the current second of the steady clock.
  static std::int64_t now() noexcept;
  /// Writes `line` to `log`, or counts it as suppressed. `log` may be empty.
  void add(std::int64_t second, const std::string& line, const Log& log);
  /// Writes "N more WHAT" to `log` after a second with suppressed lines. Call it about once a
  /// second.
  void sum_up(std::int64_t second, const Log& log);

 private:
  void sum_up_locked(std::int64_t second, const Log& log);

  const std::string what_;
  std::mutex mutex_;
  std::int64_t second_ = 0;
  std::uint64_t count_ = 0;
};

}  // namespace service
