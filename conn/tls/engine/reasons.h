// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Why an engine failed, in a code and a sentence: from OpenSSL's errors, the wire (connection below
// TLS) and the certificate.

#include <openssl/x509_vfy.h>

#include <string>

#include "ae/abi.h"
#include "conn/error.h"
#include "conn/tls/engine/openssl.h"
#include "conn/tls/engine/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// Facts from which judge() determines why an engine failed.
struct Circumstances {
  unsigned long error;  ///< the OpenSSL error code from take_reason() or take_last_reason(), or 0
  int result;           ///< what SSL_get_error(3) returned; used only if `error` is 0
  bool in_handshake;
  bool peer_ended;          ///< true if the peer's close_notify was received
  const CheckedWire& wire;  ///< the connection below TLS, with its error or end of stream
  /// Why a certificate was rejected, from describe_bad_certificate(); else empty.
  const std::string& bad_certificate;
};

/// Returns the error code and text for the failure of an engine. If memory runs out only the text
/// is lost; the code is always set.
Failure judge(const Circumstances& known) noexcept;
/// Takes the error about the connection from OpenSSL's error queue; 0 if the queue is empty. Errors
/// of ciphers or signatures may stand before it in the queue. Since OpenSSL 3.2 another error may
/// follow it, which says only that the record layer failed.
unsigned long take_reason();
/// Like take_reason(), for a queue that may begin with errors that other code has left there: the
/// last error about the connection is taken.
unsigned long take_last_reason();
/// Returns whether OpenSSL's `error` is typical of a peer whose first bytes are not TLS.
bool is_plain_text(unsigned long error);
/// Returns a text that says why a certificate was rejected. `wanted` is the server name that the
/// client expects.
std::string describe_bad_certificate(X509_STORE_CTX* store, const std::string& wanted);

}}}  // namespace conn::tls
