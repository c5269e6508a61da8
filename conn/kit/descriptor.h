// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Helpers of transports for file descriptors: an owner, poll(2) at once and with a deadline, and
// writing to a pipe. Used by transports; host programs do not need it.

#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <span>
#include <utility>

#include "ae/abi.h"
#include "ae/time.h"

namespace conn { inline namespace AECONN_ABI {

/// Owns a file descriptor and closes it on destruction. Remove the descriptor's file events before.
class Descriptor {
 public:
  Descriptor() = default;  ///< makes an object without a descriptor
  /// Takes ownership of `fd`; -1: there is no descriptor to own.
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  /// Takes over the descriptor of `other`, if there is one.
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  /// Closes the descriptor of this object, if there is one, and takes over that of `other`.
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~Descriptor() { reset(); }
  int get() const noexcept { return fd_; }  ///< the descriptor; -1: there is none
  /// Returns whether this object owns a descriptor.
  explicit operator bool() const noexcept { return fd_ >= 0; }
  /// Closes the descriptor, if there is one, and owns `fd` instead.
  void reset(int fd = -1) noexcept {
    // close() is not repeated after EINTR: Linux has closed the descriptor by then.
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

/// Returns whether poll(2) reports one of `events` on `fd`, a hang-up or an error. If `events` is
/// 0, only a hang-up or an error counts. False if `fd` is -1.
AECONN_API bool poll_now(int fd, short events) noexcept;

/// Waits until poll_now() would return true. Returns false if the deadline has passed, or if a
/// signal ends the wait (Interruption::ends()).
AECONN_API bool poll_until(int fd, short events, ae::TimePoint deadline) noexcept;

/// writev(2), without SIGPIPE: if `fd` is a pipe whose reader has closed it, returns -1 with errno
/// EPIPE, or the number of bytes that were written before, and the process is not signalled. A
/// SIGPIPE that was pending before stays pending. May be called on any thread. For sockets,
/// sendmsg(2) with MSG_NOSIGNAL costs less.
AECONN_API ssize_t write_without_signal(int fd, std::span<const iovec> parts) noexcept;

}}  // namespace conn
