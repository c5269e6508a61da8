// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Percent-encoding of URLs (RFC 3986, section 2.1).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// The part of a URL that a text is written into. Which characters must be encoded depends on the
/// part.
enum class UrlPart : std::uint8_t {
  kHost,     ///< the name of a host, outside brackets
  kAddress,  ///< an IPv6 address in brackets; a '%' in it begins its scope, such as %eth0
  kPath,     ///< the path of a Unix socket
  kKey,      ///< the name of an option
  kValue,    ///< the value of an option
};

/// Encodes any bytes so that percent_decode() restores them: each byte that may not be written
/// literally in `part` becomes %XX.
std::string percent_encode(std::string_view text, UrlPart part);

/// Decodes every %XX in `text`. Returns no value if a '%' is not followed by two hexadecimal
/// digits.
std::optional<std::string> percent_decode(std::string_view text);

/// The error message for a text that percent_decode() does not accept.
inline constexpr std::string_view kBadPercent =
    "'%' must be followed by two hexadecimal digits; a percent sign itself is %25";

}}  // namespace conn
