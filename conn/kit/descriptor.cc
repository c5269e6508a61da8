// SPDX-License-Identifier: BSD-3-Clause
#include "conn/kit/descriptor.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>

#include "conn/kit/interruption.h"

namespace conn { inline namespace AECONN_ABI {

bool poll_now(int fd, short events) noexcept {
  pollfd entry{fd, events, 0};
  return ::poll(&entry, 1, 0) > 0;
}

bool poll_until(int fd, short events, ae::TimePoint deadline) noexcept {
  while (!Interruption::ends()) {
    const ae::Duration left =
        std::max(ae::Duration(deadline - std::chrono::steady_clock::now()), ae::Duration::zero());
    const auto whole = std::chrono::floor<std::chrono::seconds>(left);
    timespec timeout{};
    timeout.tv_sec = static_cast<time_t>(whole.count());
    timeout.tv_nsec = static_cast<long>((left - whole).count());
    pollfd entry{fd, events, 0};
    const int rc = ppoll(&entry, 1, &timeout, nullptr);
    if (rc > 0) return true;
    if (rc == 0) return false;
    // poll(2) itself failed; the caller's next operation on the descriptor reports the error
    if (errno != EINTR) return true;
    (void)Interruption::came();
  }
  return false;
}

ssize_t write_without_signal(int fd, std::span<const iovec> parts) noexcept {
  // The kernel sends SIGPIPE to the writing thread, so the signal needs to be blocked only there.
  sigset_t pipe, pending, before;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  sigemptyset(&pending);
  sigpending(&pending);
  if (pthread_sigmask(SIG_BLOCK, &pipe, &before) != 0) return -1;
  const ssize_t n = ::writev(fd, parts.data(), static_cast<int>(parts.size()));
  const int error = errno;
  std::size_t size = 0;
  for (const iovec& part : parts) size += part.iov_len;
  // If the reader of a blocking pipe closes it after a part of the bytes was written, writev()
  // returns the size of that part and nevertheless raises the signal.
  const bool may_have_come = n < 0 ? error == EPIPE : static_cast<std::size_t>(n) < size;
  if (may_have_come && sigismember(&pending, SIGPIPE) == 0) {
    const timespec at_once{};
    while (sigtimedwait(&pipe, nullptr, &at_once) < 0 && errno == EINTR) continue;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return n;
}

}}  // namespace conn
