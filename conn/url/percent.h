// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Percent-encoding of URLs (RFC 3986, section 2.1).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// Which part of a URL a text is to stand in.
enum class UrlPart : std::uint8_t {
  kHost,     ///< a name
  kAddress,  ///< an IPv6 address in its brackets: a % there begins the scope
  kPath,     ///< of a Unix socket
  kKey,      ///< of an option
  kValue,    ///< of an option
};

/// Any bytes, so that percent_decode() gives them back: those that may not stand in that part as
/// they are become %XX.
std::string percent_encode(std::string_view text, UrlPart part);

/// Empty where a % is not followed by two hexadecimal digits.
std::optional<std::string> percent_decode(std::string_view text);

/// For the sentence about such a %.
inline constexpr std::string_view kBadPercent =
    "'%' must be followed by two hexadecimal digits; a percent sign itself is %25";

}}  // namespace conn
