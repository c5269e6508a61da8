// SPDX-License-Identifier: BSD-3-Clause
// The blocking operations of Connection, common to all transports: try, wait, try again.

#include <cerrno>
#include <chrono>

#include "conn/connection.h"
#include "conn/core/in_place_state.h"
#include "conn/kit/interruption.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

using Clock = std::chrono::steady_clock;

/// With a time-out of zero or less, it still checks once.
class Deadline {
 public:
  explicit Deadline(ae::Duration timeout) {
    const ae::TimePoint now = Clock::now();
    if (timeout < ae::Duration::zero()) timeout = ae::Duration::zero();
    at_ = timeout > ae::TimePoint::max() - now ? ae::TimePoint::max() : now + timeout;
  }
  ae::TimePoint at() const noexcept { return at_; }
  /// Returns true if another wait is allowed. A wait that starts at or after the deadline is the
  /// last and only polls, for transports that detect input by polling.
  bool wait_again() noexcept {
    if (last_) return false;
    last_ = Clock::now() >= at_;
    return true;
  }

 private:
  ae::TimePoint at_;
  bool last_ = false;
};

bool would_block(int err) noexcept { return err == EAGAIN || err == EWOULDBLOCK; }

}  // namespace

bool Connection::sync_wait(ae::Mask direction, ae::Duration timeout) {
  const bool reading = direction == ae::kReadable;
  if (state_ != State::kConnected) {
    if (state_ == State::kClosed || state_ == State::kError) return true;
    errno = ENOTCONN;
    return false;
  }
  if (reading && in_place_ != nullptr && (in_place_->unread() != 0 || in_place_->reading_ended()))
    return true;
  const Interruption::Scope scope;
  Deadline deadline(timeout);
  bool ready = wait_for(direction, deadline.at());
  // Data committed or sent in place goes first.
  while (ready && !reading && in_place_ != nullptr && in_place_->waits()) {
    (void)in_place_->flush();
    ready = !Interruption::ends() && deadline.wait_again() && wait_for(direction, deadline.at());
  }
  if (!ready && state_ == State::kConnected) errno = Interruption::ends() ? EINTR : ETIMEDOUT;
  return ready || state_ != State::kConnected;
}

ssize_t Connection::sync_read(void* buffer, std::size_t size, ae::Duration timeout) {
  const Interruption::Scope scope;
  Deadline deadline(timeout);
  std::size_t got = 0;
  while (got < size) {
    const ssize_t n = read(static_cast<char*>(buffer) + got, size - got);
    if (n > 0) {
      got += static_cast<std::size_t>(n);
    } else if (n == 0) {
      break;
    } else if (would_block(errno)) {
      if (Interruption::ends() || !deadline.wait_again()) {
        errno = Interruption::ends() ? EINTR : ETIMEDOUT;
        return -1;
      }
      wait_for(ae::kReadable, deadline.at());
    } else if (errno != EINTR) {
      return -1;
    }
  }
  return static_cast<ssize_t>(got);
}

ssize_t Connection::sync_write(const void* buffer, std::size_t size, ae::Duration timeout) {
  const Interruption::Scope scope;
  Deadline deadline(timeout);
  std::size_t sent = 0;
  while (sent < size) {
    const ssize_t n = write(static_cast<const char*>(buffer) + sent, size - sent);
    if (n > 0) {
      sent += static_cast<std::size_t>(n);
    } else if (n == 0 || would_block(errno)) {
      if (Interruption::ends() || !deadline.wait_again()) {
        flush();
        errno = Interruption::ends() ? EINTR : ETIMEDOUT;
        return -1;
      }
      wait_for(ae::kWritable, deadline.at());
    } else if (errno != EINTR) {
      return -1;
    }
  }
  if (state_ != State::kConnected && state_ != State::kClosed) return static_cast<ssize_t>(sent);
  if (!do_flush(deadline.at()) && buffer == nullptr) {  // flushing is the whole request
    errno = Interruption::ends() ? EINTR : ETIMEDOUT;
    return -1;
  }
  return static_cast<ssize_t>(sent);
}

ssize_t Connection::sync_readline(char* buffer, std::size_t size, ae::Duration timeout) {
  if (buffer == nullptr || size == 0) {
    errno = EINVAL;
    return -1;
  }
  const Interruption::Scope scope;
  Deadline deadline(timeout);
  std::size_t length = 0;
  buffer[0] = '\0';
  // Reads single bytes, because the data after the line must stay unread.
  while (length + 1 < size) {
    const ssize_t n = read(buffer + length, 1);
    if (n < 0 && would_block(errno)) {
      buffer[length] = '\0';
      if (Interruption::ends() || !deadline.wait_again()) {
        errno = Interruption::ends() ? EINTR : ETIMEDOUT;
        return -1;
      }
      wait_for(ae::kReadable, deadline.at());
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      buffer[length] = '\0';
      if (n == 0) errno = ECONNRESET;
      return -1;
    }
    if (buffer[length] == '\n') {
      if (length > 0 && buffer[length - 1] == '\r') --length;
      buffer[length] = '\0';
      return static_cast<ssize_t>(length);
    }
    buffer[++length] = '\0';
  }
  errno = EMSGSIZE;
  return -1;
}

}}  // namespace conn
