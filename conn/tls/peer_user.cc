// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/peer_user.h"

#include <openssl/x509v3.h>

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

std::string utf8_of(const ASN1_STRING* string) {
  unsigned char* utf8 = nullptr;
  const int size = string == nullptr ? -1 : ASN1_STRING_to_UTF8(&utf8, string);
  if (size < 0) return {};
  std::string text(reinterpret_cast<char*>(utf8), static_cast<std::size_t>(size));
  OPENSSL_free(utf8);
  // A name that contains a NUL byte is treated as empty: "admin\0.evil.example" must not be
  // mistaken for "admin".
  return text.find('\0') == std::string::npos ? text : std::string();
}

std::string common_name_of(const X509* certificate) {
  const X509_NAME* subject = X509_get_subject_name(certificate);
  const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  return at < 0 ? "" : utf8_of(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
}

std::string alternative_name_of(const X509* certificate, int kind) {
  auto* names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  std::string found;
  for (int i = 0; found.empty() && i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, i);
    if (name->type == kind) found = utf8_of(name->d.ia5);
  }
  GENERAL_NAMES_free(names);
  return found;
}

}  // namespace

std::string peer_user_of(SSL* ssl, Settings::PeerUser kind) {
  const X509* certificate = SSL_get0_peer_certificate(ssl);
  if (certificate == nullptr || SSL_get_verify_result(ssl) != X509_V_OK ||
      (SSL_get_verify_mode(ssl) & SSL_VERIFY_PEER) == 0) {
    return {};
  }
  switch (kind) {
    case Settings::PeerUser::kNo:
      return {};
    case Settings::PeerUser::kCommonName:
      return common_name_of(certificate);
    case Settings::PeerUser::kUri:
      return alternative_name_of(certificate, GEN_URI);
    case Settings::PeerUser::kDns:
      return alternative_name_of(certificate, GEN_DNS);
    case Settings::PeerUser::kEmail:
      return alternative_name_of(certificate, GEN_EMAIL);
  }
  return {};
}

}}}  // namespace conn::tls
