// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/engine/reasons.h"

#include <new>

#include "conn/tls/engine/errc.h"
#include "conn/url/coded_failure.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

/// Returns whether the OpenSSL error `error` says that a certificate is missing, or is an alert of
/// the peer about our certificate.
bool is_about_certificates(unsigned long error) {
  if (ERR_GET_LIB(error) != ERR_LIB_SSL) return false;
  if (ERR_GET_REASON(error) == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) return true;
  switch (ERR_GET_REASON(error) - SSL_AD_REASON_OFFSET) {
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
    case SSL_AD_CERTIFICATE_REVOKED:
    case SSL_AD_CERTIFICATE_EXPIRED:
    case SSL_AD_CERTIFICATE_UNKNOWN:
    case SSL_AD_UNKNOWN_CA:
    case SSL_AD_ACCESS_DENIED:
    case SSL_AD_CERTIFICATE_REQUIRED:
      return true;
    default:
      return false;
  }
}

/// Returns the text of a failure that is not an error of the wire (the connection below TLS).
std::string text_of(const Circumstances& known) {
  if (!known.bad_certificate.empty()) return known.bad_certificate;
  if (known.wire.ended() && known.in_handshake)
    return "the peer closed the connection in the middle of it";
  if (known.wire.ended() && !known.peer_ended)
    return "the peer ended the stream without close_notify, so it may have been cut short";
  if (known.in_handshake && is_plain_text(known.error))
    return reason_text(known.error) + ": the peer does not speak TLS here";
  return known.error != 0 ? reason_text(known.error)
                          : "OpenSSL gives no reason (" + std::to_string(known.result) + ")";
}

}  // namespace

unsigned long take_reason() {
  const unsigned long first = ERR_get_error();
  unsigned long error = first;
  while (error != 0 && ERR_GET_LIB(error) != ERR_LIB_SSL) error = ERR_get_error();
  return error != 0 ? error : first;
}

unsigned long take_last_reason() {
  // SSL_R_RECORD_LAYER_FAILURE, which older headers lack.
  constexpr int kRecordLayerFailed = 313;
  unsigned long last = 0, last_of_tls = 0;
  while (const unsigned long error = ERR_get_error()) {
    last = error;
    if (ERR_GET_LIB(error) == ERR_LIB_SSL && ERR_GET_REASON(error) != kRecordLayerFailed)
      last_of_tls = error;
  }
  return last_of_tls != 0 ? last_of_tls : last;
}

bool is_plain_text(unsigned long error) {
  if (ERR_GET_LIB(error) != ERR_LIB_SSL) return false;
  switch (ERR_GET_REASON(error)) {
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_BAD_RECORD_TYPE:
      return true;
    default:
      return false;
  }
}

Failure judge(const Circumstances& known) noexcept {
  const bool good_certificate = known.bad_certificate.empty();
  // True if the wire (connection below TLS) ended without close_notify. This is then the reason of
  // the failure, even if a write has failed, too: the peer's end may have caused that.
  const bool truncated = known.wire.ended() && !known.peer_ended && !known.in_handshake;
  // True if the peer sent plain text. If the wire (connection below TLS) has failed, too, that was
  // because the peer was gone when OpenSSL answered with an alert.
  const bool plain_text = known.in_handshake && is_plain_text(known.error);
  const bool by_wire = known.wire.failed() && good_certificate && !truncated && !plain_text;
  std::error_code code = known.in_handshake ? Errc::kHandshake : Errc::kProtocol;
  if (by_wire) {
    code = std::error_code(known.wire.error(), std::generic_category());
  } else if (good_certificate && truncated) {
    code = Errc::kTruncated;
  } else if (!good_certificate || is_about_certificates(known.error)) {
    code = Errc::kVerification;
  }
  return coded_failure(
      code, [&] { return printable(by_wire ? errno_text(known.wire.error()) : text_of(known)); });
}

std::string describe_bad_certificate(X509_STORE_CTX* store, const std::string& wanted) {
  const int error = X509_STORE_CTX_get_error(store);
  const int depth = X509_STORE_CTX_get_error_depth(store);
  const X509* certificate = X509_STORE_CTX_get_current_cert(store);
  std::string text = depth == 0 ? "the peer's certificate" : "a certificate of the peer's chain";
  if (certificate != nullptr) text += " \"" + subject_of(certificate) + '"';
  text += std::string(": ") + X509_verify_cert_error_string(error);
  if (error == X509_V_ERR_HOSTNAME_MISMATCH || error == X509_V_ERR_IP_ADDRESS_MISMATCH) {
    const std::string names = certificate == nullptr ? "" : names_of(certificate, 4);
    text +=
        " (wanted " + wanted + (names.empty() ? "; it names none)" : "; it names " + names + ")");
  }
  return text;
}

}}}  // namespace conn::tls
