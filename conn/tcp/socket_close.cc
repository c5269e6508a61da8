// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/socket_close.h"

#include <sys/socket.h>

namespace conn { inline namespace AECONN_ABI { namespace tcp {

void reset_when_closed(int fd) noexcept {
  const struct ::linger reset { 1, 0 };
  (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
}

}}}  // namespace conn::tcp
