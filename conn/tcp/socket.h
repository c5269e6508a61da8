// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Sockets as tcp and unix use them: non-blocking, close-on-exec, never raising SIGPIPE.

#include <unistd.h>

#include <string>
#include <utility>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/kit/resolver.h"
#include "conn/tcp/settings.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

/// Owns a descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) noexcept : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Fd() { reset(); }

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  void reset() noexcept {
    // Not repeated on EINTR: Linux has closed it by then.
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

/// Empty with errno if the kernel refuses.
Fd open_socket(int family) noexcept;

/// What an option of the connection asks of its socket. Set on a listening socket too, whose
/// connections inherit all of it on Linux: accepting costs no further call.
void apply(const Settings& settings, int fd, int family) noexcept;

/// The same for a socket that was somebody else's: what an option turns off is turned off, too.
/// Buffers that are left to the kernel stay what they are.
void apply_to_adopted(const Settings& settings, int fd, int family) noexcept;

/// Binds to Settings::source and connects. 0, EINPROGRESS, or why not.
int start_connect(int fd, const SocketAddress& to, const Settings& settings) noexcept;

/// How a connect() that was in progress ended: 0 or an errno.
int connect_result(int fd) noexcept;

/// Waits for `events` of poll(2). False if the deadline came first.
bool poll_until(int fd, short events, ae::TimePoint deadline) noexcept;

SocketAddress local_address_of(int fd) noexcept;
SocketAddress peer_address_of(int fd) noexcept;

/// Throws Error (named after the path) if `path` does not fit sockaddr_un.
SocketAddress unix_address(const std::string& path);

/// Bytes the peer's kernel has not acknowledged, or 0 if the kernel cannot tell.
int unsent_bytes(int fd) noexcept;

}}}  // namespace conn::tcp
