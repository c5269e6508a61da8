// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The keys that encrypt a server's session tickets (RFC 5077, RFC 8446, section 4.6.1). They are
// rotated, so that a stolen key reveals little; the previous key still decrypts its tickets.

#include <openssl/ssl.h>

#include <array>
#include <chrono>
#include <mutex>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "ae/time.h"
#include "conn/tls/engine/openssl.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// The keys that encrypt the session tickets of one server context. Threads may share them.
class TicketKeys {
 public:
  /// Makes the first key. A key encrypts new tickets for the time `rotation`, and decrypts tickets
  /// for twice that time. Throws Error if OpenSSL lacks AES-256-CBC or randomness.
  explicit TicketKeys(ae::Duration rotation);

  /// Choose the key that encrypts a new ticket, or that decrypts a client's ticket, and set up
  /// `cipher` and `mac` with it. Called by the callback of SSL_CTX_set_tlsext_ticket_key_evp_cb(3),
  /// with results of the same meaning.
  int seal(unsigned char* name, unsigned char* iv, EVP_CIPHER_CTX* cipher, EVP_MAC_CTX* mac);
  int open(const unsigned char* name, const unsigned char* iv, EVP_CIPHER_CTX* cipher,
           EVP_MAC_CTX* mac);

 private:
  struct Key {
    Key() = default;
    Key(const Key&) = default;
    Key& operator=(const Key&) = default;
    ~Key();
    std::array<unsigned char, 16> name{};
    std::array<unsigned char, 32> cipher{}, mac{};
    ae::TimePoint made{};
    bool valid = false;
  };
  bool refill(Key& key) const;
  bool rotate();
  static bool start_mac(EVP_MAC_CTX* mac, const Key& key);

  const ae::Duration rotation_;
  const CipherPtr cipher_;
  ae::Mutex mutex_;
  Key now_, before_;
};

}}}  // namespace conn::tls
