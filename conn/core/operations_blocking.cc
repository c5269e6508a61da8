// SPDX-License-Identifier: BSD-3-Clause
// The blocking operations of Connection. They are the same for all Carriers: they try the
// operation, wait for the Carrier, and try again.

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "conn/core/connection_core.h"
#include "conn/core/in_place_state.h"
#include "conn/kit/errno_of.h"
#include "conn/kit/interruption.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

using Clock = std::chrono::steady_clock;

/// The time at which a blocking operation must end. Even with a time-out of zero or less, the
/// operation polls once.
class Deadline {
 public:
  explicit Deadline(ae::Duration timeout) {
    const ae::TimePoint now = Clock::now();
    if (timeout < ae::Duration::zero()) timeout = ae::Duration::zero();
    at_ = timeout > ae::TimePoint::max() - now ? ae::TimePoint::max() : now + timeout;
  }
  ae::TimePoint at() const noexcept { return at_; }
  /// Returns true if the operation may wait once more. After the deadline it may wait one last
  /// time, which only polls: some transports detect input only by polling.
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
  ConnectionCore& c = ConnectionCore::of(*this);
  const bool reading = direction == ae::kReadable;
  if (c.state_ != State::kConnected) {
    if (c.state_ == State::kClosed || c.state_ == State::kError) return true;
    errno = ENOTCONN;
    return false;
  }
  if (reading && c.in_place_ != nullptr &&
      (c.in_place_->read_ahead.unread() != 0 || c.in_place_->read_ahead.ended()))
    return true;
  // After shutdown() write() fails with EPIPE at once, even while earlier output is still pending.
  if (!reading && c.in_place_ != nullptr && c.in_place_->shutdown_due()) return true;
  const Interruption::Scope scope;
  Deadline deadline(timeout);
  bool ready = c.carrier_->wait_for(direction, deadline.at());
  // Output of earlier commit() and send() calls must be passed to the Carrier before a write.
  while (ready && !reading && c.in_place_ != nullptr && c.in_place_->output().waits()) {
    (void)c.in_place_->flush();
    ready = !Interruption::ends() && deadline.wait_again() &&
            c.carrier_->wait_for(direction, deadline.at());
  }
  if (!ready && c.state_ == State::kConnected) errno = Interruption::ends() ? EINTR : ETIMEDOUT;
  return ready || c.state_ != State::kConnected;
}

ssize_t Connection::sync_read(void* buffer, std::size_t size, ae::Duration timeout) {
  ConnectionCore& c = ConnectionCore::of(*this);
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
      c.carrier_->wait_for(ae::kReadable, deadline.at());
    } else if (errno != EINTR) {
      return -1;
    }
  }
  return static_cast<ssize_t>(got);
}

ssize_t Connection::sync_write(const void* buffer, std::size_t size, ae::Duration timeout) {
  ConnectionCore& c = ConnectionCore::of(*this);
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
      c.carrier_->wait_for(ae::kWritable, deadline.at());
    } else if (errno != EINTR) {
      return -1;
    }
  }
  // False if output of earlier commit() and send() calls could not be passed to the Carrier in
  // time. If this call has written bytes, there is no such output left.
  bool flushed = true;
  while (flushed && c.in_place_ != nullptr && c.in_place_->output().waits() &&
         !c.in_place_->flush()) {
    flushed = !Interruption::ends() && deadline.wait_again();
    if (flushed) c.carrier_->wait_for(ae::kWritable, deadline.at());
  }
  const bool open = c.state_ == State::kConnected || c.state_ == State::kClosed;
  if (open && flushed) flushed = c.carrier_->flush(deadline.at());
  // A call of sync_write() without bytes only requests a flush, so the call fails if the flush does
  // not complete.
  if (buffer == nullptr && (c.state_ == State::kError || !flushed)) {
    // The failure may be one that read() reports only after the bytes that have arrived.
    const Failure& why = c.state_ == State::kError ? c.failure_ : c.carrier_->why_ended();
    errno = why                            ? errno_of(why)
            : Interruption::ends()         ? EINTR
            : Clock::now() < deadline.at() ? EPIPE
                                           : ETIMEDOUT;
    return -1;
  }
  return static_cast<ssize_t>(sent);
}

ssize_t Connection::sync_readline(char* buffer, std::size_t size, ae::Duration timeout) {
  if (buffer == nullptr || size == 0) {
    errno = EINVAL;
    return -1;
  }
  ConnectionCore& c = ConnectionCore::of(*this);
  const Interruption::Scope scope;
  Deadline deadline(timeout);
  std::size_t length = 0;
  buffer[0] = '\0';
  while (length + 1 < size) {
    const View view = peek();
    if (view.size == 0 && would_block(errno)) {
      if (Interruption::ends() || !deadline.wait_again()) {
        errno = Interruption::ends() ? EINTR : ETIMEDOUT;
        return -1;
      }
      c.carrier_->wait_for(ae::kReadable, deadline.at());
      continue;
    }
    if (view.size == 0) {
      if (errno == 0) errno = ECONNRESET;
      return -1;
    }
    // Only the bytes of the line are consumed; those after the newline stay unread.
    const std::size_t room = std::min(view.pieces[0].iov_len, size - 1 - length);
    const void* const end = std::memchr(view.pieces[0].iov_base, '\n', room);
    const std::size_t taken =
        end == nullptr
            ? room
            : static_cast<std::size_t>(static_cast<const char*>(end) -
                                       static_cast<const char*>(view.pieces[0].iov_base)) +
                  1;
    std::memcpy(buffer + length, view.pieces[0].iov_base, taken);
    consume(taken);
    length += taken;
    if (end != nullptr) {
      --length;
      if (length > 0 && buffer[length - 1] == '\r') --length;
      buffer[length] = '\0';
      return static_cast<ssize_t>(length);
    }
    buffer[length] = '\0';
  }
  errno = EMSGSIZE;
  return -1;
}

}}  // namespace conn
