// SPDX-License-Identifier: BSD-3-Clause
// The error codes of TLS: texts for logs, and conditions that code without TLS can compare.
#if AECONN_TLS

#include <set>

#include "conn/tls/type.h"
#include "tests/support/catch.h"

using conn::tls::Errc;

TEST_CASE("tls words: every code has words of its own, and conditions of the standard", "[tls]") {
  std::set<std::string> all;
  for (int code = static_cast<int>(Errc::kHandshake);
       code <= static_cast<int>(Errc::kTooManyMessages); ++code)
    all.insert(make_error_code(static_cast<Errc>(code)).message());
  CHECK(all.size() == 6);
  CHECK(all.count("unknown TLS error") == 0);
  CHECK(make_error_code(static_cast<Errc>(77)).message() == "unknown TLS error");
  CHECK(std::string(conn::tls::category().name()) == "tls");
  CHECK(make_error_code(Errc::kVerification) == std::errc::permission_denied);
  CHECK(make_error_code(Errc::kTimeout) == std::errc::timed_out);
  CHECK(make_error_code(Errc::kTruncated) == std::errc::connection_reset);
  CHECK(make_error_code(Errc::kProtocol) == std::errc::protocol_error);
}

#endif
