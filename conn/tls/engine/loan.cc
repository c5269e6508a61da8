// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/engine/loan.h"

#include <algorithm>
#include <cerrno>

namespace conn { inline namespace AECONN_ABI { namespace tls {

bool Loan::fill() {
  std::copy(bytes_.begin() + from_, bytes_.begin() + to_, bytes_.begin());
  to_ -= from_;
  from_ = 0;
  const std::size_t room = bytes_.size() - static_cast<std::size_t>(to_);
  // The end of the wire or its failure is found again by whoever reads it next.
  const ssize_t n = room != 0 ? wire_.receive(bytes_.data() + to_, room) : 0;
  if (n > 0) to_ += n;
  return !empty();
}

ssize_t Loan::receive(void* buffer, std::size_t size) {
  if (!lent_) {
    if (empty() || size == 0) return wire_.receive(buffer, size);
    if (wire_.receive(nullptr, 0) < 0) return -1;  // in a forked child, which may not read
  }
  if (empty()) {
    errno = EAGAIN;
    return -1;
  }
  const std::size_t n = std::min(size, static_cast<std::size_t>(to_ - from_));
  std::copy_n(bytes_.begin() + from_, n, static_cast<char*>(buffer));
  from_ += static_cast<std::ptrdiff_t>(n);
  return static_cast<ssize_t>(n);
}

}}}  // namespace conn::tls
