// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/engine/kernel_tls.h"

#include <linux/tls.h>

#include <algorithm>
#include <climits>
#include <new>

namespace conn { inline namespace AECONN_ABI { namespace tls {

KernelTls::KernelTls(int socket)
    : socket_(socket < 0 ? nullptr : BIO_new_socket(socket, BIO_NOCLOSE)) {
  if (socket >= 0 && !socket_) throw std::bad_alloc();
}

void KernelTls::settle() noexcept {
  if (!socket_) return;
  const bool receives = has_receive_key();
  if (BIO_get_ktls_send(socket_.get()) != 0) {
    share_ = receives ? Share::kBoth : Share::kSends;
  } else {
    share_ = receives ? Share::kReceives : Share::kNone;
  }
}

long KernelTls::control(int command, long number, void* pointer) noexcept {
  // Declines the keys for receiving in TLS 1.3 (kernel_tls.h says why). `number` is 1 for the keys
  // for sending; `pointer` points to data that begins with a tls_crypto_info.
  if (command == kSetKeys && number == 0 && pointer != nullptr &&
      static_cast<const tls_crypto_info*>(pointer)->version == TLS_1_3_VERSION)
    return 0;
  return socket_ ? BIO_ctrl(socket_.get(), command, number, pointer) : 0;
}

int KernelTls::receive_record(char* buffer, std::size_t size, bool& later) noexcept {
  const int n =
      BIO_read(socket_.get(), buffer, static_cast<int>(std::min<std::size_t>(size, INT_MAX)));
  later = n <= 0 && BIO_should_retry(socket_.get()) != 0;
  return n;
}

}}}  // namespace conn::tls
