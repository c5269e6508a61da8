// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Owning pointers for OpenSSL's objects, and text for its errors and certificates.

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cstdint>
#include <memory>
#include <string>

#include "ae/abi.h"
#include "conn/error.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

template <auto Free>
struct FreeWith {
  template <class T>
  void operator()(T* object) const noexcept {
    Free(object);
  }
};
struct FreeBytes {
  void operator()(char* bytes) const noexcept { OPENSSL_free(bytes); }
};
using ContextPtr = std::unique_ptr<SSL_CTX, FreeWith<SSL_CTX_free>>;
using SslPtr = std::unique_ptr<SSL, FreeWith<SSL_free>>;
using SessionPtr = std::unique_ptr<SSL_SESSION, FreeWith<SSL_SESSION_free>>;
using BioPtr = std::unique_ptr<BIO, FreeWith<BIO_free_all>>;
using BioMethodPtr = std::unique_ptr<BIO_METHOD, FreeWith<BIO_meth_free>>;
using CertificatePtr = std::unique_ptr<X509, FreeWith<X509_free>>;
using CrlPtr = std::unique_ptr<X509_CRL, FreeWith<X509_CRL_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, FreeWith<EVP_PKEY_free>>;
using StorePtr = std::unique_ptr<X509_STORE, FreeWith<X509_STORE_free>>;
using CipherPtr = std::unique_ptr<EVP_CIPHER, FreeWith<EVP_CIPHER_free>>;

/// Returns the text of an OpenSSL error code, without its numbers; for an alert of the peer, the
/// text says that the peer sent it.
std::string reason_text(unsigned long error);
/// Clears OpenSSL's error queue of the calling thread. Returns the text of the queue's first error,
/// or `otherwise` if the queue was empty.
std::string take_errors(const std::string& otherwise);

/// Returns the subject of a certificate, such as "CN=server, O=Example", for error messages;
/// control characters are escaped or shown as '?'.
std::string subject_of(const X509* certificate);
/// Returns at most `limit` alternative names of a certificate, such as "DNS:localhost,
/// IP:127.0.0.1"; empty if it has none.
std::string names_of(const X509* certificate, std::size_t limit);
/// Returns the time at which a certificate expires (notAfter), in seconds since 1970, UTC; 0 if
/// OpenSSL cannot read the time, or if `certificate` is null.
std::int64_t end_of(const X509* certificate);
/// Returns the earlier of two results of end_of(); 0 stands for no time.
constexpr std::int64_t first_end(std::int64_t a, std::int64_t b) noexcept {
  return a == 0 || (b != 0 && b < a) ? b : a;
}
/// Returns the first bytes of `text`, 256 at most, with "..." if there were more: the names in a
/// peer's certificate may have any length, and error messages contain them.
std::string shortened(std::string text);
std::string to_pem(X509* certificate);
/// Returns the bytes that an OpenSSL memory BIO contains.
std::string contents_of(BIO* memory);

}}}  // namespace conn::tls
