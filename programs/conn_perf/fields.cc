// SPDX-License-Identifier: BSD-3-Clause
#include "fields.h"

#include <algorithm>
#include <charconv>

namespace perf {

Fields Fields::parse(std::string_view text) {
  Fields fields;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t equals = line.find('=');
    if (equals != std::string_view::npos)
      fields.set(std::string(line.substr(0, equals)), line.substr(equals + 1));
  }
  return fields;
}

std::string Fields::to_string() const {
  std::string text;
  for (const auto& [key, value] : values_) text.append(key).append("=").append(value).append("\n");
  return text;
}

void Fields::set(std::string key, std::string_view value) {
  std::string& stored = values_[std::move(key)];
  stored = value;
  std::replace(stored.begin(), stored.end(), '\n', ' ');
}

std::string Fields::text(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? std::string() : found->second;
}

std::optional<std::uint64_t> Fields::number(std::string_view key) const {
  const std::string digits = text(key);
  std::uint64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace perf
