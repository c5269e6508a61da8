// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The TLS settings of the servers that give OpenSSL to their library: those that tls:// has by
// default, so that the same version and cipher suite are compared.

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <stdexcept>
#include <string>

#include "settings.h"

namespace peers {

inline void check(bool worked, const std::string& what) {
  if (worked) return;
  const char* const reason = ERR_reason_error_string(ERR_peek_error());
  throw std::runtime_error(what + ": " + (reason != nullptr ? reason : "failed"));
}

/// Sets up a context for a server. Throws std::runtime_error.
inline void configure(SSL_CTX* context, const Settings& set) {
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_options(context, SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_NO_RENEGOTIATION);
  check(SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384") == 1,
        "SSL_CTX_set_ciphersuites");
  SSL_CTX_set_mode(context, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  check(SSL_CTX_use_certificate_chain_file(context, set.certificate.c_str()) == 1, set.certificate);
  check(SSL_CTX_use_PrivateKey_file(context, set.key.c_str(), SSL_FILETYPE_PEM) == 1, set.key);
}

}  // namespace peers
