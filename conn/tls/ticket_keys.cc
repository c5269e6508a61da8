// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/ticket_keys.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstring>

#include "conn/error.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

TicketKeys::Key::~Key() {
  OPENSSL_cleanse(cipher.data(), cipher.size());
  OPENSSL_cleanse(mac.data(), mac.size());
}

TicketKeys::TicketKeys(ae::Duration rotation)
    : rotation_(rotation), cipher_(EVP_CIPHER_fetch(nullptr, "AES-256-CBC", nullptr)) {
  if (!cipher_ || !refill(now_)) {
    throw Error("make a session ticket key: " + take_errors("OpenSSL does not say why"));
  }
}

bool TicketKeys::refill(Key& key) const {
  key.valid = RAND_bytes(key.name.data(), static_cast<int>(key.name.size())) == 1 &&
              RAND_priv_bytes(key.cipher.data(), static_cast<int>(key.cipher.size())) == 1 &&
              RAND_priv_bytes(key.mac.data(), static_cast<int>(key.mac.size())) == 1;
  key.made = std::chrono::steady_clock::now();
  return key.valid;
}

/// Replaces expired keys. Returns false if there is no valid key to encrypt tickets with.
bool TicketKeys::rotate() {
  const ae::TimePoint now = std::chrono::steady_clock::now();
  if (before_.valid && now - before_.made >= 2 * rotation_) before_ = Key();
  if (now - now_.made < rotation_) return now_.valid;
  // The current key becomes the previous key, which still decrypts tickets. If it is two rotation
  // periods old or older, it has already expired for that purpose, too, and is dropped.
  before_ = now - now_.made < 2 * rotation_ ? now_ : Key();
  return refill(now_);
}

bool TicketKeys::start_mac(EVP_MAC_CTX* mac, const Key& key) {
  char digest[] = "SHA256";
  const std::array<OSSL_PARAM, 3> params{
      OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY,
                                        const_cast<unsigned char*>(key.mac.data()), key.mac.size()),
      OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_end()};
  return EVP_MAC_CTX_set_params(mac, params.data()) == 1;
}

int TicketKeys::seal(unsigned char* name, unsigned char* iv, EVP_CIPHER_CTX* cipher,
                     EVP_MAC_CTX* mac) {
  const std::lock_guard lock(mutex_);
  if (!rotate()) return 0;  // 0: OpenSSL sends no ticket, and the connection continues
  if (RAND_bytes(iv, EVP_CIPHER_get_iv_length(cipher_.get())) != 1) return -1;
  std::copy(now_.name.begin(), now_.name.end(), name);
  if (EVP_EncryptInit_ex(cipher, cipher_.get(), nullptr, now_.cipher.data(), iv) != 1) return -1;
  return start_mac(mac, now_) ? 1 : -1;
}

int TicketKeys::open(const unsigned char* name, const unsigned char* iv, EVP_CIPHER_CTX* cipher,
                     EVP_MAC_CTX* mac) {
  const std::lock_guard lock(mutex_);
  (void)rotate();
  const auto names = [&](const Key& key) {
    return key.valid && std::memcmp(key.name.data(), name, key.name.size()) == 0;
  };
  const Key* key = names(now_) ? &now_ : names(before_) ? &before_ : nullptr;
  // 0: the ticket's key is unknown or expired, so OpenSSL makes a full handshake
  if (key == nullptr) return 0;
  if (!start_mac(mac, *key) ||
      EVP_DecryptInit_ex(cipher, cipher_.get(), nullptr, key->cipher.data(), iv) != 1) {
    return -1;
  }
  // The result 2 makes OpenSSL send a fresh ticket, since the previous key encrypted this one.
  return key == &now_ ? 1 : 2;
}

}}}  // namespace conn::tls
