// SPDX-License-Identifier: BSD-3-Clause
#include "conn/url/percent.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

constexpr std::string_view kUnreserved =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";

/// Returns the characters that this part of a URL may contain without percent-encoding, in addition
/// to the unreserved characters of RFC 3986.
std::string_view also_allowed(UrlPart part) noexcept {
  switch (part) {
    case UrlPart::kHost:
      return "*";
    case UrlPart::kAddress:
      return ":%@!$&'()*+,;=";
    case UrlPart::kPath:
      return "/:@!$&'()*+,;=";
    case UrlPart::kKey:
      return "/:@!$'()*+,;?";
    case UrlPart::kValue:
      return "/:@!$'()*+,;?=";
  }
  return {};
}

int digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

std::string percent_encode(std::string_view text, UrlPart part) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  const std::string_view also = also_allowed(part);
  std::string out;
  for (const char c : text) {
    if (kUnreserved.find(c) != std::string_view::npos || also.find(c) != std::string_view::npos) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += '%';
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::optional<std::string> percent_decode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (text.size() - i < 3) return std::nullopt;
    const int high = digit(text[i + 1]), low = digit(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

}}  // namespace conn
