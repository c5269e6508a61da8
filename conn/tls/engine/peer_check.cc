// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/engine/peer_check.h"

#include <new>

#include "conn/tls/engine/errc.h"
#include "conn/tls/engine/reasons.h"
#include "conn/url/coded_failure.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

/// Returns whether a handshake message is a KeyUpdate that asks this end to change its keys, too
/// (RFC 8446, section 4.6.3). A malformed one is left to OpenSSL.
bool requests_key_update(std::span<const unsigned char> message) {
  constexpr std::size_t kHeader = 4;
  return message[0] == SSL3_MT_KEY_UPDATE && message.size() > kHeader &&
         message[kHeader] == SSL_KEY_UPDATE_REQUESTED;
}

}  // namespace

void PeerCheck::on_bad_certificate(X509_STORE_CTX* store) {
  if (!bad_certificate_.empty()) return;
  // text for the case that memory runs out in the next line; short enough to need no memory
  bad_certificate_ = "a certificate";
  bad_certificate_ = describe_bad_certificate(store, wanted_name);
}

void PeerCheck::on_message(std::span<const unsigned char> message, bool kernel_encrypts) noexcept {
  if (objects()) return;
  if (limit_.count_message()) {
    objection_ = Objection::kTooManyMessages;
  } else if (kernel_encrypts && requests_key_update(message)) {
    // A KeyUpdate that asks for one in return ends the connection: OpenSSL would change its own key
    // for sending, but not the kernel's. Any other KeyUpdate is allowed, because in TLS 1.3 the
    // kernel never decrypts (KernelTls::control()).
    objection_ = Objection::kKeyUpdate;
  }
}

Failure PeerCheck::objection() const noexcept {
  if (!objects()) return {};
  const bool many = objection_ == Objection::kTooManyMessages;
  return coded_failure(many ? Errc::kTooManyMessages : Errc::kProtocol, [&] {
    return many ? "the peer sends handshake messages (KeyUpdate, tickets) without end"
                : "the peer asks for new keys (KeyUpdate), which ktls=yes cannot make: the "
                  "kernel encrypts";
  });
}

}}}  // namespace conn::tls
