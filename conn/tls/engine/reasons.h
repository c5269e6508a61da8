// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Why an engine failed, in a code and a sentence: from OpenSSL's errors, the wire and the
// certificate.

#include <openssl/x509_vfy.h>

#include <string>

#include "ae/abi.h"
#include "conn/error.h"
#include "conn/tls/engine/openssl.h"
#include "conn/tls/engine/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// What is known when an engine fails.
struct Circumstances {
  unsigned long error;  ///< from take_reason()
  int result;           ///< SSL_get_error(3); of interest if there is no error
  bool in_handshake;
  bool peer_ended;                     ///< the peer's close_notify was received
  const CheckedWire& wire;             ///< and how it ended
  const std::string& bad_certificate;  ///< from describe_bad_certificate(), or empty
};

/// If memory runs out only the text is lost; the code is always set.
Failure judge(const Circumstances& known) noexcept;
/// Takes the error about the connection from OpenSSL's queue. Errors of a cipher or a signature
/// precede it; since OpenSSL 3.2 a further error, that the record layer failed, follows it.
unsigned long take_reason();
/// Whether the error is typical of a first record that is not TLS.
bool is_plain_text(unsigned long error);
/// Why a certificate was rejected. `wanted` is the name that the client expects.
std::string describe_bad_certificate(X509_STORE_CTX* store, const std::string& wanted);

}}}  // namespace conn::tls
