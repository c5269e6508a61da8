// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The ciphertext side of an engine: the BIO (BIO_meth_new(3)) by which OpenSSL reads and writes,
// and what it needs for that. The engine opens and closes the taps; OpenSSL reads and writes.

#include <cstddef>

#include "ae/abi.h"
#include "conn/tls/engine/kernel_tls.h"
#include "conn/tls/engine/output.h"
#include "conn/tls/engine/supply.h"
#include "conn/tls/engine/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

struct Channel {
  /// With this many bytes unsent nothing more is read: reading would only cause more replies.
  static constexpr std::size_t kMostUnsent = 32768;

  /// As Engine().
  Channel(Wire& to, int socket) : wire(to), kernel(socket) {}
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// A new BIO that refers to this object. Throws std::bad_alloc.
  BIO* make_bio();

  CheckedWire wire;
  Supply supply;
  Output output{wire};
  KernelTls kernel;
  /// OpenSSL is not told of failed writes: it would return no more data that the peer had sent. The
  /// engine checks the wire after a write.
  bool hides_write_failures = false;

 private:
  static BIO_METHOD* make_method();
  static Channel& of(BIO* bio);
  static int read(BIO* bio, char* buffer, int size);
  static int write(BIO* bio, const char* bytes, int size);
  static long control(BIO* bio, int command, long number, void* pointer);
  ssize_t receive(char* buffer, std::size_t size);
  ssize_t receive_from_kernel(char* buffer, std::size_t size);
};

}}}  // namespace conn::tls
