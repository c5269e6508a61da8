// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Lines of a log about connections that failed, of which peers may cause any number: ten a second,
// then how many more there were.

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace service {

/// Any thread. Seconds are of any clock that only goes forward.
class LimitedLog {
 public:
  using Log = std::function<void(const std::string&)>;
  /// `what`: for "N more WHAT", as "refused".
  explicit LimitedLog(std::string_view what) : what_(what) {}

  /// The second of the steady clock.
  static std::int64_t now() noexcept;
  /// Writes the line, or counts it. `log` may be empty.
  void add(std::int64_t second, const std::string& line, const Log& log);
  /// "N more WHAT" once a second that had more lines is over. To be called every second or so.
  void sum_up(std::int64_t second, const Log& log);

 private:
  void sum_up_locked(std::int64_t second, const Log& log);

  const std::string what_;
  std::mutex mutex_;
  std::int64_t second_ = 0;
  std::uint64_t count_ = 0;
};

}  // namespace service
