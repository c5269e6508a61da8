// SPDX-License-Identifier: BSD-3-Clause
// Printing of foreign text: one line, UTF-8, without control characters.
#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "conn/error.h"
#include "conn/metrics.h"
#include "tests/support/catch.h"

namespace {

std::string all_bytes() {
  std::string text;
  for (int c = 0; c < 256; ++c) text += static_cast<char>(c);
  return text;
}

/// Checks for clean UTF-8 by decoding it, without using code of printable().
bool is_one_clean_line(const std::string& text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto at = [&](std::size_t k) { return static_cast<unsigned char>(text[k]); };
    if (at(i) < 0x80) {
      if (at(i) < ' ' || at(i) == 0x7f) return false;
      ++i;
      continue;
    }
    const std::size_t size = (at(i) & 0xe0) == 0xc0   ? 2
                             : (at(i) & 0xf0) == 0xe0 ? 3
                             : (at(i) & 0xf8) == 0xf0 ? 4
                                                      : 0;
    if (size == 0 || i + size > text.size()) return false;
    for (std::size_t k = 1; k < size; ++k)
      if ((at(i + k) & 0xc0) != 0x80) return false;
    if (size == 2 && at(i) == 0xc2 && at(i + 1) < 0xa0) return false;  // C1
    i += size;
  }
  return true;
}

}  // namespace

TEST_CASE("printable: every byte, alone, between letters and all of them", "[conn]") {
  for (int c = 0; c < 256; ++c) {
    const char byte = static_cast<char>(c);
    const bool plain = c >= ' ' && c < 0x7f;
    CAPTURE(c);
    CHECK(conn::printable(std::string(1, byte)) == std::string(1, plain ? byte : '?'));
    CHECK(conn::printable(std::string("a") + byte + "b") ==
          std::string("a") + (plain ? byte : '?') + "b");
  }
  const std::string clean = conn::printable(all_bytes());
  CHECK(clean.size() == 256);
  CHECK(is_one_clean_line(clean));
  CHECK(conn::printable(clean) == clean);
}

TEST_CASE("printable: UTF-8 stays, what is none or acts does not", "[conn]") {
  for (const std::string kept : {"", "caf\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xc2\xa0"})
    CHECK(conn::printable(kept) == kept);
  const std::pair<std::string, std::string> changed[] = {
      {"\xc0\xaf", "??"},                 // overlong
      {"\xe0\x80\x80", "???"},            // overlong
      {"\xf0\x80\x80\x80", "????"},       // overlong
      {"\xed\xa0\x80", "???"},            // a surrogate
      {"\xf4\x90\x80\x80", "????"},       // beyond U+10FFFF
      {"\xf8\x88\x80\x80\x80", "?????"},  // five bytes
      {"\xc3", "?"},                      // truncated
      {"\xe2\x82", "??"},                 // truncated
      {"\xc3(", "?("},                    // invalid second byte
      {"\xc2\x9b"
       "31m",
       "??31m"},                // CSI as one character
      {"\xe2\x80\xa8", "???"},  // line separator
      {"\xe2\x80\xae"
       "abc",
       "???abc"},  // right-to-left override
      {"\x1b[2J", "?[2J"}};
  for (const auto& [text, expected] : changed) CHECK(conn::printable(text) == expected);
}

TEST_CASE("printable: all pairs of bytes, and some of three, come out clean", "[conn]") {
  for (int a = 0x80; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      const std::string text{static_cast<char>(a), static_cast<char>(b)};
      if (!is_one_clean_line(conn::printable(text))) FAIL(a << ' ' << b);
      for (const int c : {0x00, 0x7f, 0x80, 0x9f, 0xa8, 0xae, 0xbf, 0xc2})
        if (!is_one_clean_line(conn::printable(text + static_cast<char>(c))))
          FAIL(a << ' ' << b << ' ' << c);
    }
  }
}

TEST_CASE("printable: errors, failures and metrics have passed it", "[conn]") {
  const std::string evil = all_bytes();
  CHECK(is_one_clean_line(conn::Error(evil).what()));
  CHECK(is_one_clean_line(conn::errno_failure(ECONNRESET, evil).text));
  CHECK(is_one_clean_line(conn::Failure(std::make_error_code(std::errc::io_error), evil).text));
  conn::MetricsText text;
  text.begin("kv_test", conn::MetricsText::Type::kGauge, evil);
  text.sample({{"label", evil}}, 1);
  std::string lines = text.text();
  CHECK(std::count(lines.begin(), lines.end(), '\n') == 3);
  std::replace(lines.begin(), lines.end(), '\n', ' ');
  CHECK(is_one_clean_line(lines));
}
