// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What OpenSSL's callbacks find out about the peer, while OpenSSL handles its messages: why its
// certificate is refused, and whether it sends messages that must end the connection although
// OpenSSL accepts them.

#include <cstdint>
#include <span>
#include <string>

#include "ae/abi.h"
#include "conn/error.h"
#include "conn/tls/engine/message_limit.h"
#include "conn/tls/engine/openssl.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

class PeerCheck {
 public:
  /// The server name that a client expects in the certificate, for error messages.
  std::string wanted_name;

  /// Records why OpenSSL refuses a certificate of the peer; only the first reason is kept. Throws
  /// std::bad_alloc, and then records a shorter text.
  void on_bad_certificate(X509_STORE_CTX* store);
  /// The reason that on_bad_certificate() has recorded; "": none.
  const std::string& bad_certificate() const noexcept { return bad_certificate_; }

  /// Adds to the number of bytes of data that were read or written. The more data, the more
  /// messages the peer may send.
  void count_data(std::size_t bytes) noexcept { limit_.count_data(bytes); }
  /// Checks a handshake message that came after the handshake; it must not be empty.
  /// `kernel_encrypts`: whether the kernel has the key for sending, which it cannot change.
  void on_message(std::span<const unsigned char> message, bool kernel_encrypts) noexcept;
  /// Whether a message must end the connection. This never changes back to false.
  bool objects() const noexcept { return objection_ != Objection::kNone; }
  /// Returns why the connection must end; empty unless objects(). If memory runs out, only the code
  /// is right.
  Failure objection() const noexcept;

 private:
  enum class Objection : std::uint8_t { kNone, kTooManyMessages, kKeyUpdate };

  MessageLimit limit_;
  Objection objection_ = Objection::kNone;
  std::string bad_certificate_;
};

}}}  // namespace conn::tls
