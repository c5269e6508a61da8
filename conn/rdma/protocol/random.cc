// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/protocol/random.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>

namespace conn { inline namespace AECONN_ABI { namespace rdma {

bool fill_random(std::span<std::byte> bytes) noexcept {
  for (std::span<std::byte> rest = bytes; !rest.empty();) {
    // getrandom() may return fewer bytes than asked for if these are more than 256, and may be
    // interrupted by a signal.
    const ssize_t got = getrandom(rest.data(), rest.size(), GRND_NONBLOCK);
    if (got > 0) {
      rest = rest.subspan(static_cast<std::size_t>(got));
    } else if (got == 0 || errno != EINTR) {
      std::fill(bytes.begin(), bytes.end(), std::byte{0});
      return false;
    }
  }
  return true;
}

}}}  // namespace conn::rdma
