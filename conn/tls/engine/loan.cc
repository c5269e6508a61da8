// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/engine/loan.h"

#include <algorithm>
#include <cerrno>

namespace conn { inline namespace AECONN_ABI { namespace tls {

bool Loan::fill() {
  constexpr std::size_t kMost = 16384;
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(from_));
  from_ = 0;
  const std::size_t before = bytes_.size();
  if (before >= kMost) return true;
  bytes_.resize(kMost);
  // An end or a failure of the wire (connection below TLS) is not recorded here: the next reader
  // finds it again.
  const ssize_t n = wire_.receive(bytes_.data() + before, kMost - before);
  bytes_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  return !empty();
}

void Loan::put_back(std::span<const char> bytes) {
  if (bytes.size() > from_) {
    bytes_.insert(bytes_.begin(), bytes.size() - from_, 0);
    from_ = bytes.size();
  }
  from_ -= bytes.size();
  std::copy(bytes.begin(), bytes.end(), bytes_.data() + from_);
}

ssize_t Loan::receive(void* buffer, std::size_t size) {
  if (!lent_) {
    if (empty() || size == 0) return wire_.receive(buffer, size);
    if (wire_.receive(nullptr, 0) < 0) return -1;  // reading is refused, as in a forked child
  }
  if (empty()) {
    errno = EAGAIN;
    return -1;
  }
  const std::size_t n = std::min(size, bytes_.size() - from_);
  std::copy_n(bytes_.data() + from_, n, static_cast<char*>(buffer));
  from_ += n;
  return static_cast<ssize_t>(n);
}

}}}  // namespace conn::tls
