// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/socket_close.h"

#include <sys/socket.h>

#include <cerrno>

namespace conn { inline namespace AECONN_ABI { namespace tcp {

void reset_when_closed(int fd) noexcept {
  const struct ::linger reset { 1, 0 };
  (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
}

void close_unix(Fd fd) noexcept {
  if (!fd) return;
  // After shutdown(2) the peer can add no more unread bytes, so the loop that discards them ends.
  ::shutdown(fd.get(), SHUT_RDWR);
  char discarded[16 * 1024];
  ssize_t n;
  do {
    n = ::recv(fd.get(), discarded, sizeof discarded, MSG_DONTWAIT);
  } while (n > 0 || (n < 0 && errno == EINTR));
}

}}}  // namespace conn::tcp
