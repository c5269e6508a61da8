// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Kernel TLS of one engine: the socket whose kernel may take over the encryption, and which
// directions it took over. OpenSSL passes the keys through a socket BIO, with control commands.

#include <cstddef>
#include <cstdint>

#include "ae/abi.h"
#include "conn/tls/engine/openssl.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

class KernelTls {
 public:
  /// In which directions the kernel encrypts or decrypts. Determined by settle(); constant
  /// afterwards.
  enum class Share : std::uint8_t { kNone, kSends, kReceives, kBoth };

  /// OpenSSL's control command that passes keys to the kernel, which bio.h lists only in a comment.
  static constexpr int kSetKeys = 72;

  /// `socket`: the descriptor of the connection's socket; -1 if kernel TLS is not used. Throws
  /// std::bad_alloc.
  explicit KernelTls(int socket);

  /// Whether kernel TLS may be used, which requires a socket.
  bool possible() const noexcept { return socket_ != nullptr; }
  /// Finds out in which directions the kernel has taken over; called after the handshake.
  void settle() noexcept;
  bool sends() const noexcept { return share_ == Share::kSends || share_ == Share::kBoth; }
  bool receives() const noexcept { return share_ == Share::kReceives || share_ == Share::kBoth; }
  bool works() const noexcept { return share_ != Share::kNone; }
  /// Whether the kernel decrypts already. It may begin to do so at any time during the handshake.
  bool has_receive_key() const noexcept {
    return socket_ != nullptr && BIO_get_ktls_recv(socket_.get()) != 0;
  }

  /// Passes an OpenSSL control command on to the socket's BIO. Returns the BIO's result, or 0 if
  /// there is no socket. Declines keys for decrypting TLS 1.3: when the peer changes its key, the
  /// kernel needs the new one, but Linux before 6.14 cannot take it, and OpenSSL does not pass it.
  long control(int command, long number, void* pointer) noexcept;
  /// Reads one record that the kernel has decrypted, with the header that OpenSSL expects, and
  /// returns what BIO_read(3) returns. After -1, `later` tells whether there is merely nothing to
  /// read now; otherwise errno has the reason.
  int receive_record(char* buffer, std::size_t size, bool& later) noexcept;

 private:
  BioPtr socket_;
  Share share_ = Share::kNone;
};

}}}  // namespace conn::tls
