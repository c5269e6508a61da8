// SPDX-License-Identifier: BSD-3-Clause
// The error codes of TLS: texts for logs, and conditions that code without TLS can compare.
#if AECONN_TLS

#include <openssl/x509v3.h>

#include <memory>
#include <set>
#include <string>

#include "conn/tls/engine/openssl.h"
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

TEST_CASE("tls words: a certificate with names of any length makes a sentence of some length",
          "[tls][hostile]") {
  const conn::tls::CertificatePtr made(X509_new());
  X509_NAME* const name = X509_get_subject_name(made.get());
  std::string text;  // of characters of two bytes
  while (text.size() < 60'000) text += "\xc3\xa4";
  const auto* const bytes = reinterpret_cast<const unsigned char*>(text.data());
  const auto size = static_cast<int>(text.size());
  REQUIRE(X509_NAME_add_entry_by_txt(name, "name", MBSTRING_UTF8, bytes, 8, -1, 0) == 1);
  CHECK(conn::tls::subject_of(made.get()) == "name=" + text.substr(0, 8));
  const std::unique_ptr<ASN1_OBJECT, void (*)(ASN1_OBJECT*)> kind(OBJ_txt2obj("1.2.3.4.5", 1),
                                                                  ASN1_OBJECT_free);
  REQUIRE(X509_NAME_add_entry_by_OBJ(name, kind.get(), MBSTRING_UTF8, bytes, size, -1, 0) == 1);
  CHECK(conn::tls::subject_of(made.get()).size() <= 256 + 3);
  const std::string long_name = "DNS:" + std::string(60'000, 'a') + ",DNS:b.example";
  X509_EXTENSION* const names =
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, long_name.c_str());
  REQUIRE(names != nullptr);
  REQUIRE(X509_add_ext(made.get(), names, -1) == 1);
  X509_EXTENSION_free(names);
  CHECK(conn::tls::names_of(made.get(), 4) ==
        "DNS:" + std::string(256 - 4, 'a') + "..., DNS:b.example");
  CHECK(conn::tls::shortened(text) == text.substr(0, 256) + "...");
  CHECK(conn::tls::shortened("x" + text) == "x" + text.substr(0, 254) + "...");
  CHECK(conn::tls::shortened(text.substr(0, 256)) == text.substr(0, 256));
}

#endif
