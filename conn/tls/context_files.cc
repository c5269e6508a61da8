// SPDX-License-Identifier: BSD-3-Clause
// What a Context takes from files: its certificate and key, the authorities that it trusts, and
// their revocation lists.

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>

#include "conn/error.h"
#include "conn/tls/context.h"
#include "conn/tls/engine/files.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

/// Returns whether the certificate is signed with a digest, such as SHA-1, that peers with our
/// security level refuse. OpenSSL 3.0 itself refuses to present such a certificate; releases since
/// 2026 do not.
bool is_signed_weakly(const SSL_CTX* context, X509* certificate) {
  // Minimum strength of signatures in bits at each security level, index 0 to 5, from
  // SSL_CTX_set_security_level(3).
  constexpr std::array<int, 6> kBits{0, 80, 112, 128, 192, 256};
  // Peers do not check the signature of a self-signed certificate, so it need not be strong.
  if ((X509_get_extension_flags(certificate) & EXFLAG_SS) != 0) return false;
  int bits = -1;
  if (X509_get_signature_info(certificate, nullptr, nullptr, &bits, nullptr) != 1 || bits < 0)
    return false;
  const auto level = static_cast<std::size_t>(SSL_CTX_get_security_level(context));
  return bits < kBits[std::min(level, kBits.size() - 1)];
}

}  // namespace

void Context::load_identity(SSL_CTX* context, const Settings::Identity& identity) const {
  // opens the file only because a failure then throws an Error with errno's text
  (void)open_file(identity.cert, "the certificate");
  if (SSL_CTX_use_certificate_chain_file(context, identity.cert.c_str()) != 1) {
    if (at_end_of_pem()) {
      throw Error("the certificate " + identity.cert + " holds no certificate in PEM form");
    }
    fail("the certificate " + identity.cert + " cannot be used");
  }
  STACK_OF(X509)* chain = nullptr;
  SSL_CTX_get0_chain_certs(context, &chain);
  bool weak = false;
  const auto look_at = [&](X509* certificate) {
    weak = weak || is_signed_weakly(context, certificate);
    ends_ = first_end(ends_, end_of(certificate));
  };
  look_at(SSL_CTX_get0_certificate(context));
  for (int i = 0; i < sk_X509_num(chain); ++i) look_at(sk_X509_value(chain, i));
  if (weak) {
    ERR_raise(ERR_LIB_SSL, SSL_R_CA_MD_TOO_WEAK);
    fail("the certificate " + identity.cert + " cannot be used");
  }
  Secret from_file;
  if (!settings_.key_pass_file.empty()) from_file = read_pass_phrase(settings_.key_pass_file);
  const Secret& phrase = settings_.key_pass_file.empty() ? pass_phrase_ : from_file;
  const KeyPtr key = read_key(identity.key, phrase.view());
  if (X509_check_private_key(SSL_CTX_get0_certificate(context), key.get()) != 1) {
    ERR_clear_error();
    throw Error("the key " + identity.key + " does not belong to the certificate " + identity.cert);
  }
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1) {
    fail("the key " + identity.key + " cannot be used");
  }
}

void Context::load_trust(SSL_CTX* context) const {
  std::string name = settings_.ca;
  for (const std::string* const part : {&settings_.ca_dir, &settings_.crl})
    name.append(1, '\0').append(*part);
  name += settings_.crl_check == Settings::CrlCheck::kChain ? 'c' : 'l';
  // Files that have changed get another name in the cache, so contexts made earlier do not share
  // them.
  if (settings_.reload == Settings::Reload::kAuto)
    name += FileStamps({settings_.ca, settings_.ca_dir, settings_.crl}).text();
  if (!trusted_) trusted_ = trust_->find(name);
  if (trusted_) {
    SSL_CTX_set1_cert_store(context, trusted_.get());
    return;
  }
  read_trust(context);
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  X509_STORE_up_ref(store);
  trusted_ = StorePtr(store);
  trust_->keep(name, trusted_);
}

void Context::read_trust(SSL_CTX* context) const {
  if (settings_.ca.empty() && settings_.ca_dir.empty()) {
    if (SSL_CTX_set_default_verify_paths(context) != 1) fail("read the system's certificates");
  }
  if (!settings_.ca.empty()) {
    (void)open_file(settings_.ca, "the CA certificates");
    if (SSL_CTX_load_verify_file(context, settings_.ca.c_str()) != 1) {
      ERR_clear_error();
      throw Error("the CA file " + settings_.ca + " holds no certificate in PEM form");
    }
  }
  if (!settings_.ca_dir.empty()) {
    struct stat info {};
    const int err = stat(settings_.ca_dir.c_str(), &info) != 0 ? errno : ENOTDIR;
    if (err != ENOTDIR || !S_ISDIR(info.st_mode)) {
      throw Error(file_error(err), "the CA folder " + settings_.ca_dir + " is not a folder");
    }
    if (SSL_CTX_load_verify_dir(context, settings_.ca_dir.c_str()) != 1) {
      fail("the CA folder " + settings_.ca_dir + " cannot be used");
    }
  }
  load_revocations(context);
  // Threads share these certificates. OpenSSL parses a certificate's extensions at its first use;
  // the loop below forces that now, before any handshake, for certificates from files. Certificates
  // in folders are read when needed.
  STACK_OF(X509_OBJECT)* const trusted = X509_STORE_get0_objects(SSL_CTX_get_cert_store(context));
  for (int i = 0; i < sk_X509_OBJECT_num(trusted); ++i) {
    X509* const certificate = X509_OBJECT_get0_X509(sk_X509_OBJECT_value(trusted, i));
    if (certificate != nullptr) (void)X509_check_purpose(certificate, -1, 0);
  }
  // drops the errors of malformed certificates, because only chains that need them must fail
  ERR_clear_error();
}

void Context::load_revocations(SSL_CTX* context) const {
  if (settings_.crl.empty()) return;
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  const BioPtr file = open_file(settings_.crl, "the revocation list");
  std::size_t count = 0;
  while (const CrlPtr crl{PEM_read_bio_X509_CRL(file.get(), nullptr, nullptr, nullptr)}) {
    if (X509_STORE_add_crl(store, crl.get()) != 1) {
      fail("the revocation list " + settings_.crl + " cannot be used");
    }
    ++count;
  }
  if (!at_end_of_pem() || count == 0) {
    ERR_clear_error();
    throw Error("the revocation list " + settings_.crl + " holds no CRL in PEM form");
  }
  unsigned long flags = X509_V_FLAG_CRL_CHECK;
  if (settings_.crl_check == Settings::CrlCheck::kChain) flags |= X509_V_FLAG_CRL_CHECK_ALL;
  X509_STORE_set_flags(store, flags);
}

std::shared_ptr<X509_STORE> TrustCache::find(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = stores_.find(name);
  return found == stores_.end() ? nullptr : found->second.lock();
}

void TrustCache::keep(const std::string& name, const std::shared_ptr<X509_STORE>& store) {
  const std::lock_guard lock(mutex_);
  std::erase_if(stores_, [](const auto& entry) { return entry.second.expired(); });
  stores_[name] = store;
}

}}}  // namespace conn::tls
