// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Options of a transport, as text: "window=256k&keepalive=3s". They configure a type, or a single
// endpoint (after the '?' of its URL), which then wins.

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

/// Keys and values, of which a transport knows the meaning.
class AECONN_API Options {
 public:
  Options() = default;
  /// As in `{{"window", "256k"}}`.
  Options(std::initializer_list<std::pair<const std::string, std::string>> values)
      : values_(values) {}
  /// Parses "key=value&key=value", where "%26" is '&' and so on (RFC 3986); '+' stays as it is. A
  /// key alone means "yes". Throws Error for an empty or repeated key, and for a bad "%".
  static Options parse(std::string_view text);

  /// Replaces what was there.
  void set(std::string key, std::string value) { values_[std::move(key)] = std::move(value); }
  bool has(std::string_view key) const;                    ///< whether the key is there
  bool empty() const noexcept { return values_.empty(); }  ///< whether there is none
  /// All of them, by key.
  const std::map<std::string, std::string, std::less<>>& values() const noexcept { return values_; }
  std::string to_string() const;  ///< as parse() takes it, whatever bytes there are
  /// These options, with `winner`'s values where both have one.
  Options merged_with(const Options& winner) const;

  // Each throws Error, with a sentence that names the key, the value and what is allowed, where the
  // value is malformed or out of range.
  /// The value; `fallback` where the key is absent, here and below.
  std::string text(std::string_view key, std::string_view fallback) const;
  bool flag(std::string_view key, bool fallback) const;  ///< yes/no, on/off, true/false, 1/0
  /// A count, plain digits.
  std::uint64_t number(std::string_view key, std::uint64_t fallback, std::uint64_t min,
                       std::uint64_t max) const;
  /// Bytes: "65536", "64k", "1m", "1g" (powers of 1024; "kb", "KiB" and so on too).
  std::uint64_t bytes(std::string_view key, std::uint64_t fallback, std::uint64_t min,
                      std::uint64_t max) const;
  /// A time: "3s", "250ms", "20us", "2m"; a plain number counts seconds.
  ae::Duration duration(std::string_view key, ae::Duration fallback, ae::Duration min,
                        ae::Duration max) const;
  /// Throws Error if a key is not in `known`; the sentence lists the known ones.
  void only(std::string_view owner, std::initializer_list<std::string_view> known) const;
  /// The same.
  void only(std::string_view owner, std::span<const std::string_view> known) const;

 private:
  const std::string* find(std::string_view key) const;
  std::map<std::string, std::string, std::less<>> values_;
};

/// A size in its largest whole unit, as an option has it: 65536 is "64k".
AECONN_API std::string size_words(std::uint64_t bytes);
/// A time in its largest whole unit: "5m". Less than nothing is 0.
AECONN_API std::string time_words(ae::Duration time);

}}  // namespace conn
