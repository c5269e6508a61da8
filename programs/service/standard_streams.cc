// SPDX-License-Identifier: BSD-3-Clause
#include "programs/service/standard_streams.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

namespace service {
namespace {

/// Waits until a call that failed with EAGAIN can succeed: another process may have made the file
/// non-blocking.
void wait_for(int fd, short events) {
  pollfd waiting{fd, events, 0};
  (void)::poll(&waiting, 1, -1);
}

/// Returns false and sets errno on failure.
bool write_all(int fd, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t size = ::write(fd, text.data(), text.size());
    if (size >= 0)
      text.remove_prefix(static_cast<std::size_t>(size));
    else if (errno == EAGAIN)
      wait_for(fd, POLLOUT);
    else if (errno != EINTR)
      return false;
  }
  return true;
}

}  // namespace

void open_standard_streams() noexcept {
  (void)std::signal(SIGPIPE, SIG_IGN);
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
    // open() returns the lowest free number, which is this one.
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void)::open("/dev/null", O_RDWR);
}

void print(std::string_view text) {
  if (!write_all(STDOUT_FILENO, text))
    throw StreamError("cannot write to standard output: " + conn::errno_text(errno));
}

void complain(std::string_view program, std::string text) noexcept try {
  (void)write_all(STDERR_FILENO,
                  std::string(program) + ": " + conn::printable(std::move(text)) + '\n');
} catch (const std::bad_alloc&) {
  (void)write_all(STDERR_FILENO, "no memory for a line of the log\n");
}

std::size_t read_input(char* to, std::size_t size) {
  for (;;) {
    const ssize_t got = ::read(STDIN_FILENO, to, size);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno == EAGAIN)
      wait_for(STDIN_FILENO, POLLIN);
    else if (errno != EINTR)
      throw StreamError("cannot read standard input: " + conn::errno_text(errno));
  }
}

bool InputLines::next(std::string& line) {
  for (std::size_t seen = 0;;) {
    const std::size_t end = unread_.find('\n', seen);
    if (end != std::string::npos || (ended_ && !unread_.empty())) {
      line = unread_.substr(0, end);
      unread_.erase(0, end == std::string::npos ? end : end + 1);
      return true;
    }
    if (ended_) return false;
    seen = unread_.size();
    char piece[64 * 1024];
    const std::size_t size = read_input(piece, sizeof piece);
    unread_.append(piece, size);
    ended_ = size == 0;
  }
}

}  // namespace service
