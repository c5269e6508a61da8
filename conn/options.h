// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Options of a transport as text, "window=256k&keepalive=3s". They configure a type, or a single
// endpoint (after the '?' of its URL), whose values take precedence.

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

/// Keys and values; the transport defines their meaning.
class AECONN_API Options {
 public:
  Options() = default;
  /// For example `{{"window", "256k"}}`.
  Options(std::initializer_list<std::pair<const std::string, std::string>> values)
      : values_(values) {}
  /// Parses "key=value&key=value" with percent-encoding (RFC 3986, "%26" is '&'); '+' is not
  /// special. A key without a value means "yes". Throws Error for an empty or repeated key, and for
  /// a bad "%".
  static Options parse(std::string_view text);

  /// Sets a value, replacing an existing one.
  void set(std::string key, std::string value) { values_[std::move(key)] = std::move(value); }
  bool has(std::string_view key) const;                    ///< whether the key is present
  bool empty() const noexcept { return values_.empty(); }  ///< whether there are no options
  /// All options, sorted by key.
  const std::map<std::string, std::string, std::less<>>& values() const noexcept { return values_; }
  std::string to_string() const;  ///< in the format of parse(), for any bytes
  /// These options combined with `winner`, whose values take precedence.
  Options merged_with(const Options& winner) const;

  // The following functions throw Error for a malformed or out-of-range value, with a sentence that
  // names the key, the value and what is allowed.
  /// The value; `fallback` if the key is absent. This also applies to the functions below.
  std::string text(std::string_view key, std::string_view fallback) const;
  bool flag(std::string_view key, bool fallback) const;  ///< yes/no, on/off, true/false, 1/0
  /// A count in decimal digits.
  std::uint64_t number(std::string_view key, std::uint64_t fallback, std::uint64_t min,
                       std::uint64_t max) const;
  /// A size in bytes: "65536", "64k", "1m", "1g" (powers of 1024; "kb", "KiB" and so on too).
  std::uint64_t bytes(std::string_view key, std::uint64_t fallback, std::uint64_t min,
                      std::uint64_t max) const;
  /// A time: "3s", "250ms", "20us", "2m"; a plain number is in seconds.
  ae::Duration duration(std::string_view key, ae::Duration fallback, ae::Duration min,
                        ae::Duration max) const;
  /// Throws Error if a key is not in `known`; the sentence lists the known keys.
  void only(std::string_view owner, std::initializer_list<std::string_view> known) const;
  /// The same.
  void only(std::string_view owner, std::span<const std::string_view> known) const;

 private:
  const std::string* find(std::string_view key) const;
  std::map<std::string, std::string, std::less<>> values_;
};

/// A size in its largest whole unit, in option format: 65536 is "64k".
AECONN_API std::string size_words(std::uint64_t bytes);
/// A time in its largest whole unit: "5m". A negative time is shown as 0.
AECONN_API std::string time_words(ae::Duration time);

}}  // namespace conn
