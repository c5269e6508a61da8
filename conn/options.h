// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Options: settings of a transport as text, "window=256k&keepalive=3s". They apply to a whole
// transport, or to a single endpoint (after the '?' of its URL), where they take precedence.

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "ae/abi.h"
#include "ae/time.h"

namespace conn { inline namespace AECONN_ABI {

/// Names and values of options. The transport defines what they mean.
class AECONN_API Options {
 public:
  Options() = default;
  /// Creates options from a list, for example `{{"window", "256k"}}`.
  Options(std::initializer_list<std::pair<const std::string, std::string>> values)
      : values_(values) {}
  /// Parses "key=value&key=value" with percent-encoding (RFC 3986, "%26" is '&'); '+' is not
  /// special. A key without a value means "yes". Throws Error for an empty or repeated key, and for
  /// a '%' that two hexadecimal digits do not follow.
  static Options parse(std::string_view text);

  /// Sets a value, replacing an existing one.
  void set(std::string key, std::string value) { values_[std::move(key)] = std::move(value); }
  bool has(std::string_view key) const;                    ///< whether the key is present
  bool empty() const noexcept { return values_.empty(); }  ///< whether there are no options
  /// All options, sorted by key.
  const std::map<std::string, std::string, std::less<>>& values() const noexcept { return values_; }
  std::string to_string() const;  ///< text from which parse() makes the same options, for any bytes
  /// Returns these options together with `winner`. If both have a key, the value in `winner`
  /// applies.
  Options merged_with(const Options& winner) const;

  // The functions from here on throw Error for a malformed or out-of-range value, with a sentence
  // that names the key, the value and what is allowed. If the key is absent, they return
  // `fallback`.

  /// Returns the value as text.
  std::string text(std::string_view key, std::string_view fallback) const;
  bool flag(std::string_view key, bool fallback) const;  ///< yes/no, on/off, true/false or 1/0
  /// Returns a count in decimal digits.
  std::uint64_t number(std::string_view key, std::uint64_t fallback, std::uint64_t min,
                       std::uint64_t max) const;
  /// Returns a size in bytes: "65536", "64k", "1m", "1g" (powers of 1024; "kb", "KiB" and so on
  /// too).
  std::uint64_t bytes(std::string_view key, std::uint64_t fallback, std::uint64_t min,
                      std::uint64_t max) const;
  /// Returns a time: "3s", "250ms", "20us", "2m"; a plain number is in seconds.
  ae::Duration duration(std::string_view key, ae::Duration fallback, ae::Duration min,
                        ae::Duration max) const;
  /// Throws Error if one of the keys is not in `known`. The sentence lists the known keys; `owner`
  /// is what has the options, such as the transport's name.
  void only(std::string_view owner, std::initializer_list<std::string_view> known) const;
  /// Throws Error if one of the keys is not in the array `known`, like the other only().
  void only(std::string_view owner, std::span<const std::string_view> known) const;

 private:
  const std::string* find(std::string_view key) const;
  std::map<std::string, std::string, std::less<>> values_;
};

/// Formats a size in its largest whole unit, as options have it: 65536 becomes "64k".
AECONN_API std::string size_words(std::uint64_t bytes);
/// Formats a time in its largest whole unit: "5m". A negative time becomes 0.
AECONN_API std::string time_words(ae::Duration time);

}}  // namespace conn
