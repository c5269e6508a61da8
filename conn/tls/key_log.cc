// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/key_log.h"

#include <cerrno>
#include <csignal>
#include <ctime>

namespace conn { inline namespace AECONN_ABI { namespace tls {

ssize_t write_without_signal(int fd, std::span<const iovec> parts) noexcept {
  // The kernel sends this SIGPIPE to the thread that writes.
  sigset_t pipe, pending, before;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  sigemptyset(&pending);
  sigpending(&pending);
  if (pthread_sigmask(SIG_BLOCK, &pipe, &before) != 0) return -1;
  const ssize_t n = ::writev(fd, parts.data(), static_cast<int>(parts.size()));
  const int error = errno;
  if (n < 0 && error == EPIPE && sigismember(&pending, SIGPIPE) == 0) {
    const timespec at_once{};
    while (sigtimedwait(&pipe, nullptr, &at_once) < 0 && errno == EINTR) continue;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return n;
}

}}}  // namespace conn::tls
