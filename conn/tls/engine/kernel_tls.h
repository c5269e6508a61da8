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
  /// What the kernel does. It is known, and does not change, from settle() on.
  enum class Share : std::uint8_t { kNone, kSends, kReceives, kBoth };

  /// `socket`: its descriptor, or -1 if the kernel takes no part. Throws std::bad_alloc.
  explicit KernelTls(int socket);

  bool possible() const noexcept { return socket_ != nullptr; }  ///< there is a socket
  /// Reads what the handshake has arranged.
  void settle() noexcept;
  bool sends() const noexcept { return share_ == Share::kSends || share_ == Share::kBoth; }
  bool receives() const noexcept { return share_ == Share::kReceives || share_ == Share::kBoth; }
  bool works() const noexcept { return share_ != Share::kNone; }
  /// Whether the kernel decrypts now; during the handshake it may begin to at any time.
  bool has_receive_key() const noexcept {
    return socket_ != nullptr && BIO_get_ktls_recv(socket_.get()) != 0;
  }

  /// Passes a control command of OpenSSL on to the socket. 0 without one.
  long control(int command, long number, void* pointer) noexcept;
  /// Reads one record, with a header that the kernel makes for OpenSSL: as BIO_read(3). If it
  /// returns -1, then `later` says whether there is nothing for now; else errno has the reason.
  int receive_record(char* buffer, std::size_t size, bool& later) noexcept;

 private:
  BioPtr socket_;
  Share share_ = Share::kNone;
};

}}}  // namespace conn::tls
