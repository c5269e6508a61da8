// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Data that was decrypted before the program read it, to find out whether there is any. Because the
// data is kept here, a message takes one call of OpenSSL (SSL_read()), where SSL_peek() and then
// SSL_read() would be two calls.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "ae/abi.h"
#include "conn/tls/engine/openssl.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

class ReadAheadBytes {
 public:
  static constexpr std::size_t kSize = 1024;  ///< most bytes that are read ahead

  bool empty() const noexcept { return from_ == to_; }
  /// Returns memory of kSize bytes to read into, which is allocated if necessary; an empty span if
  /// memory runs out. To be called only while empty().
  std::span<char> room() noexcept {
    if (!bytes_) bytes_.reset(static_cast<char*>(OPENSSL_malloc(kSize)));
    return {bytes_.get(), bytes_ ? kSize : 0};
  }
  /// Records that the first `size` bytes of the room() were filled; at most kSize.
  void filled(std::size_t size) noexcept {
    from_ = 0;
    to_ = static_cast<std::uint16_t>(size);
  }
  /// Moves the oldest bytes to `buffer`, `size` at most. Returns how many.
  std::size_t take(void* buffer, std::size_t size) noexcept {
    size = std::min<std::size_t>(size, to_ - from_);
    std::memcpy(buffer, bytes_.get() + from_, size);
    from_ = static_cast<std::uint16_t>(from_ + size);
    return size;
  }
  /// Frees the memory, unless it holds bytes; room() allocates it again.
  void release_memory() noexcept {
    if (empty()) bytes_.reset();
  }

 private:
  // Allocated by OPENSSL_malloc(), like OpenSSL's own buffers, and freed together with these.
  std::unique_ptr<char, FreeBytes> bytes_;
  std::uint16_t from_ = 0, to_ = 0;  // bytes_[from_] to bytes_[to_ - 1] are unread
};

}}}  // namespace conn::tls
