// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the texts of conn-perf's messages hold: lines of key=value.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace perf {

class Fields {
 public:
  /// Lines without '=' are left out; of a repeated key the last counts.
  static Fields parse(std::string_view text);
  std::string to_string() const;

  /// A line end in `value` becomes a blank.
  void set(std::string key, std::string_view value);
  void set(std::string key, std::uint64_t value) { set(std::move(key), std::to_string(value)); }
  void set(std::string key, std::optional<std::uint64_t> value) {
    if (value) set(std::move(key), *value);
  }

  std::string text(std::string_view key) const;  ///< "" if absent
  /// Nothing if absent or no number.
  std::optional<std::uint64_t> number(std::string_view key) const;
  bool flag(std::string_view key) const { return text(key) == "yes"; }

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace perf
