// SPDX-License-Identifier: BSD-3-Clause
#include "conn/options.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <limits>
#include <optional>

#include "conn/error.h"
#include "conn/url/percent.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

constexpr std::uint64_t kKiB = 1024, kMiB = kKiB * 1024, kGiB = kMiB * 1024, kTiB = kGiB * 1024;
// The units of sizes, largest first, as describe() requires. If a unit has several names, error
// messages use the first one.
constexpr std::array kByteUnits{
    Unit{"t", kTiB},   Unit{"tb", kTiB},  Unit{"tib", kTiB}, Unit{"g", kGiB},   Unit{"gb", kGiB},
    Unit{"gib", kGiB}, Unit{"m", kMiB},   Unit{"mb", kMiB},  Unit{"mib", kMiB}, Unit{"k", kKiB},
    Unit{"kb", kKiB},  Unit{"kib", kKiB}, Unit{"", 1},       Unit{"b", 1}};
constexpr std::array kTimeUnits{Unit{"h", 3'600'000'000'000},
                                Unit{"m", 60'000'000'000},
                                Unit{"s", 1'000'000'000},
                                Unit{"", 1'000'000'000},
                                Unit{"ms", 1'000'000},
                                Unit{"us", 1'000},
                                Unit{"ns", 1}};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

/// Parses a number with one of `units`, such as "250ms", without sign, space or fraction. Returns
/// no value for anything else, or if the result does not fit in 64 bits.
template <std::size_t N>
std::optional<std::uint64_t> scaled(std::string_view text, const std::array<Unit, N>& units) {
  std::uint64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc{}) return std::nullopt;
  const std::string unit = lower(text.substr(static_cast<std::size_t>(end - text.data())));
  for (const Unit& known : units) {
    if (known.name != unit) continue;
    if (count > std::numeric_limits<std::uint64_t>::max() / known.factor) return std::nullopt;
    return count * known.factor;
  }
  return std::nullopt;
}

/// Formats a value in the largest unit that divides it, for error messages: 65536 becomes "64k".
template <std::size_t N>
std::string describe(std::uint64_t value, const std::array<Unit, N>& units) {
  for (const Unit& unit : units) {
    if (value != 0 && !unit.name.empty() && unit.name != "b" && value % unit.factor == 0) {
      return std::to_string(value / unit.factor) + std::string(unit.name);
    }
  }
  return std::to_string(value);
}

[[noreturn]] void bad(std::string_view key, const std::string& value, const std::string& allowed) {
  throw Error("option " + std::string(key) + "=" + value + ": must be " + allowed);
}

/// Decodes the percent-encoding of `part`, which is the name or the value of the option `item`.
std::string decoded(std::string_view item, std::string_view part) {
  if (std::optional<std::string> text = percent_decode(part)) return *std::move(text);
  throw Error("option " + std::string(item) + ": " + std::string(kBadPercent));
}

}  // namespace

Options Options::parse(std::string_view text) {
  Options options;
  while (!text.empty()) {
    const std::size_t end = text.find('&');
    const std::string_view item = text.substr(0, end);
    const std::size_t equals = item.find('=');
    std::string key = decoded(item, item.substr(0, equals));
    if (key.empty()) throw Error("an option has no name (options look like key=value&key=value)");
    if (options.has(key)) throw Error("option " + key + " is given twice");
    options.set(std::move(key),
                equals == std::string_view::npos ? "yes" : decoded(item, item.substr(equals + 1)));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
    if (text.empty()) throw Error("an option is missing after the last '&'");
  }
  return options;
}

const std::string* Options::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

bool Options::has(std::string_view key) const { return find(key) != nullptr; }

std::string Options::to_string() const {
  std::string out;
  for (const auto& [key, value] : values_) {
    if (!out.empty()) out += '&';
    out.append(percent_encode(key, UrlPart::kKey)).append("=");
    out.append(percent_encode(value, UrlPart::kValue));
  }
  return out;
}

Options Options::merged_with(const Options& winner) const {
  Options merged = winner;
  // insert() does not overwrite the values of `winner`.
  merged.values_.insert(values_.begin(), values_.end());
  return merged;
}

std::string Options::text(std::string_view key, std::string_view fallback) const {
  const std::string* value = find(key);
  return value != nullptr ? *value : std::string(fallback);
}

bool Options::flag(std::string_view key, bool fallback) const {
  const std::string* value = find(key);
  if (value == nullptr) return fallback;
  const std::string word = lower(*value);
  if (word == "yes" || word == "on" || word == "true" || word == "1") return true;
  if (word == "no" || word == "off" || word == "false" || word == "0") return false;
  bad(key, *value, "yes or no");
}

std::uint64_t Options::number(std::string_view key, std::uint64_t fallback, std::uint64_t min,
                              std::uint64_t max) const {
  const std::string* value = find(key);
  if (value == nullptr) return fallback;
  const auto parsed = scaled(*value, std::array{Unit{"", 1}});
  if (!parsed || *parsed < min || *parsed > max) {
    bad(key, *value, "a number from " + std::to_string(min) + " to " + std::to_string(max));
  }
  return *parsed;
}

std::uint64_t Options::bytes(std::string_view key, std::uint64_t fallback, std::uint64_t min,
                             std::uint64_t max) const {
  const std::string* value = find(key);
  if (value == nullptr) return fallback;
  const auto parsed = scaled(*value, kByteUnits);
  if (!parsed || *parsed < min || *parsed > max) {
    bad(key, *value,
        "a size from " + size_words(min) + " to " + size_words(max) + ", as in 65536, 64k or 1m");
  }
  return *parsed;
}

ae::Duration Options::duration(std::string_view key, ae::Duration fallback, ae::Duration min,
                               ae::Duration max) const {
  const std::string* value = find(key);
  if (value == nullptr) return fallback;
  const auto parsed = scaled(*value, kTimeUnits);
  const auto in_range = [&](std::uint64_t ns) {
    return ns <= static_cast<std::uint64_t>(std::numeric_limits<ae::Duration::rep>::max()) &&
           static_cast<ae::Duration::rep>(ns) >= min.count() &&
           static_cast<ae::Duration::rep>(ns) <= max.count();
  };
  if (!parsed || !in_range(*parsed)) {
    bad(key, *value,
        "a time from " + time_words(min) + " to " + time_words(max) + ", as in 3s, 250ms or 2m");
  }
  return ae::Duration(static_cast<ae::Duration::rep>(*parsed));
}

void Options::only(std::string_view owner, std::initializer_list<std::string_view> known) const {
  only(owner, std::span(known.begin(), known.size()));
}

void Options::only(std::string_view owner, std::span<const std::string_view> known) const {
  for (const auto& [key, value] : values_) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string list;
    for (const std::string_view name : known) list.append(list.empty() ? "" : ", ").append(name);
    throw Error(std::string(owner) + " has no option " + key + "; " +
                (list.empty() ? "it has none" : "there are " + list));
  }
}

std::string size_words(std::uint64_t bytes) { return describe(bytes, kByteUnits); }

std::string time_words(ae::Duration time) {
  return describe(static_cast<std::uint64_t>(std::max<ae::Duration::rep>(time.count(), 0)),
                  kTimeUnits);
}

}}  // namespace conn
