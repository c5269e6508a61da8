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

/// Names and values of options, as in a URL. Each transport defines which options exist and what
/// they mean.
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

  /// Sets the option `key` to `value`, replacing an earlier value of this option.
  void set(std::string key, std::string value) { values_[std::move(key)] = std::move(value); }
  bool has(std::string_view key) const;  ///< returns whether the option `key` is set
  bool empty() const noexcept { return values_.empty(); }  ///< returns whether no option is set
  /// All options that are set, sorted by name.
  const std::map<std::string, std::string, std::less<>>& values() const noexcept { return values_; }
  /// Text that parse() turns back into the same options, whatever bytes they contain.
  std::string to_string() const;
  /// Returns these options together with those of `winner`. If an option is in both, the value from
  /// `winner` applies.
  Options merged_with(const Options& winner) const;

  // The functions from here on throw Error for a malformed or out-of-range value, with a sentence
  // that names the key, the value and what is allowed. If the key is absent, they return
  // `fallback`.

  /// Returns the value of option `key` as text; `fallback` if the option is not set.
  std::string text(std::string_view key, std::string_view fallback) const;
  /// Returns whether option `key` is yes, on, true or 1, as opposed to no, off, false or 0;
  /// `fallback` if the option is not set.
  bool flag(std::string_view key, bool fallback) const;
  /// Returns the value of option `key`, a count in decimal digits; `fallback` if the option is not
  /// set. Throws Error if the value is not from `min` to `max`.
  std::uint64_t number(std::string_view key, std::uint64_t fallback, std::uint64_t min,
                       std::uint64_t max) const;
  /// Returns the value of option `key`, a size in bytes such as "65536", "64k", "1m", "1g" (powers
  /// of 1024; "kb", "KiB" and so on too), like number().
  std::uint64_t bytes(std::string_view key, std::uint64_t fallback, std::uint64_t min,
                      std::uint64_t max) const;
  /// Returns the value of option `key`, a length of time such as "3s", "250ms", "20us", "2m"; a
  /// plain number is in seconds. Otherwise like number().
  ae::Duration duration(std::string_view key, ae::Duration fallback, ae::Duration min,
                        ae::Duration max) const;
  /// Throws Error if one of the keys is not in `known`. The sentence lists the known keys; `owner`
  /// is what has the options, such as the transport's name.
  void only(std::string_view owner, std::initializer_list<std::string_view> known) const;
  /// Throws Error if an option is set whose name is not in the array `known`, like the other
  /// overload of only().
  void only(std::string_view owner, std::span<const std::string_view> known) const;

 private:
  const std::string* find(std::string_view key) const;
  std::map<std::string, std::string, std::less<>> values_;
};

/// Formats a size in bytes in the largest unit that divides it, as option values are written: 65536
/// becomes "64k".
AECONN_API std::string size_words(std::uint64_t bytes);
/// Formats a duration in the largest unit that divides it, as option values are written: "5m". A
/// negative duration becomes 0.
AECONN_API std::string time_words(ae::Duration time);

}}  // namespace conn
