// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A pass phrase whose memory is overwritten when it is destroyed.

#include <openssl/crypto.h>

#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string_view text) : bytes_(text.begin(), text.end()) {}
  Secret(const Secret&) = default;
  Secret(Secret&& other) noexcept : bytes_(std::move(other.bytes_)) {}
  Secret& operator=(Secret other) noexcept {
    bytes_.swap(other.bytes_);
    return *this;
  }
  ~Secret() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

  /// Makes a secret of `size` zero bytes, which the caller then fills through data().
  explicit Secret(std::size_t size) : bytes_(size) {}
  char* data() noexcept { return bytes_.data(); }
  /// Keeps the first `size` bytes, and overwrites and drops the others.
  void shrink(std::size_t size) {
    OPENSSL_cleanse(bytes_.data() + size, bytes_.size() - size);
    bytes_.resize(size);
  }
  std::string_view view() const noexcept { return {bytes_.data(), bytes_.size()}; }
  bool empty() const noexcept { return bytes_.empty(); }

 private:
  // never grows, because a reallocation would leave a copy of the secret in freed memory
  std::vector<char> bytes_;
};

}}}  // namespace conn::tls
