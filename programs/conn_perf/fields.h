// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Contents of the text messages of conn-perf: key=value lines.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace perf {

class Fields {
 public:
  /// Parses a message. Lines without '=' are ignored; the last value of a repeated key wins.
  static Fields parse(std::string_view text);
  std::string to_string() const;

  /// Sets the value of `key`. Line breaks in `value` are replaced by blanks.
  void set(std::string key, std::string_view value);
  void set(std::string key, std::uint64_t value) { set(std::move(key), std::to_string(value)); }
  void set(std::string key, std::optional<std::uint64_t> value) {
    if (value) set(std::move(key), *value);
  }

  std::string text(std::string_view key) const;  ///< "" if `key` is absent
  /// Returns no value if `key` is absent or its value is not a number.
  std::optional<std::uint64_t> number(std::string_view key) const;
  bool flag(std::string_view key) const { return text(key) == "yes"; }

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace perf
