// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/engine/openssl.h"

#include <arpa/inet.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <array>
#include <ctime>

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

std::string text_of(const ASN1_STRING* string) {
  return printable({reinterpret_cast<const char*>(ASN1_STRING_get0_data(string)),
                    static_cast<std::size_t>(ASN1_STRING_length(string))});
}

std::string name_text(const GENERAL_NAME& name) {
  switch (name.type) {
    case GEN_DNS:
      return "DNS:" + text_of(name.d.dNSName);
    case GEN_URI:
      return "URI:" + text_of(name.d.uniformResourceIdentifier);
    case GEN_EMAIL:
      return "email:" + text_of(name.d.rfc822Name);
    case GEN_IPADD: {
      std::array<char, INET6_ADDRSTRLEN> text{};
      const int size = ASN1_STRING_length(name.d.iPAddress);
      if (size != 4 && size != 16) return {};
      inet_ntop(size == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(name.d.iPAddress),
                text.data(), text.size());
      return std::string("IP:") + text.data();
    }
    default:
      return {};
  }
}

std::string alert_text(int alert) {
  switch (alert) {  // the cases are alerts whose names OpenSSL 3.0 does not know
    case SSL_AD_CERTIFICATE_REQUIRED:
      return "certificate required";
    case SSL_AD_MISSING_EXTENSION:
      return "missing extension";
    case SSL_AD_NO_APPLICATION_PROTOCOL:
      return "no application protocol";
    default:
      return SSL_alert_desc_string_long(alert);
  }
}

}  // namespace

std::string reason_text(unsigned long error) {
  if (ERR_GET_LIB(error) == ERR_LIB_SYS) {
    return std::generic_category().message(ERR_GET_REASON(error));
  }
  const int reason = ERR_GET_REASON(error);
  if (ERR_GET_LIB(error) == ERR_LIB_SSL && reason > SSL_AD_REASON_OFFSET &&
      reason < SSL_AD_REASON_OFFSET + 256) {
    return "the peer answered with the alert \"" + alert_text(reason - SSL_AD_REASON_OFFSET) + '"';
  }
  if (const char* text = ERR_reason_error_string(error)) return text;
  std::array<char, 256> text{};
  ERR_error_string_n(error, text.data(), text.size());
  return text.data();
}

std::string take_errors(const std::string& otherwise) {
  const unsigned long first = ERR_peek_error();
  std::string text = first == 0 ? otherwise : reason_text(first);
  ERR_clear_error();
  return text;
}

std::int64_t end_of(const X509* certificate) {
  std::tm when{};
  if (certificate == nullptr || ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &when) != 1)
    return 0;
  return ::timegm(&when);
}

std::string contents_of(BIO* memory) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory, &data);
  return size > 0 ? std::string(data, static_cast<std::size_t>(size)) : std::string();
}

std::string shortened(std::string text) {
  constexpr std::size_t kMost = 256;
  if (text.size() <= kMost) return text;
  std::size_t end = kMost;
  // Moves the end of the text back to where a UTF-8 character begins.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  text.resize(end);
  return text + "...";
}

std::string subject_of(const X509* certificate) {
  const BioPtr memory(BIO_new(BIO_s_mem()));
  if (!memory) return {};
  // Prints the subject in the order and with the escapes of RFC 2253, in UTF-8; control characters
  // become \XX.
  X509_NAME_print_ex(memory.get(), X509_get_subject_name(certificate), 0,
                     (XN_FLAG_RFC2253 | XN_FLAG_SEP_CPLUS_SPC) &
                         ~static_cast<unsigned long>(ASN1_STRFLGS_ESC_MSB));
  std::string text = printable(shortened(contents_of(memory.get())));
  return text.empty() ? "(no subject)" : text;
}

std::string names_of(const X509* certificate, std::size_t limit) {
  const auto free_names = [](GENERAL_NAMES* names) { GENERAL_NAMES_free(names); };
  const std::unique_ptr<GENERAL_NAMES, decltype(free_names)> names(
      static_cast<GENERAL_NAMES*>(
          X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)),
      free_names);
  std::string list;
  std::size_t shown = 0;
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const std::string one = shortened(name_text(*sk_GENERAL_NAME_value(names.get(), i)));
    if (one.empty()) continue;
    if (++shown > limit) return list + ", ...";
    list.append(list.empty() ? "" : ", ").append(one);
  }
  return list;
}

std::string to_pem(X509* certificate) {
  const BioPtr memory(BIO_new(BIO_s_mem()));
  if (!memory || PEM_write_bio_X509(memory.get(), certificate) != 1) return {};
  return contents_of(memory.get());
}

}}}  // namespace conn::tls
