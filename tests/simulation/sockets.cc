// SPDX-License-Identifier: BSD-3-Clause
// The library's socket calls, intercepted by the linker's --wrap: with a World they may fail or
// transfer less than asked, as the kernel's may. Otherwise they call the kernel.

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "tests/simulation/memory.h"
#include "tests/simulation/world.h"

using simulation::Below;
using simulation::World;

extern "C" {

ssize_t __real_recv(int, void*, size_t, int);
ssize_t __real_recvmsg(int, msghdr*, int);
ssize_t __real_send(int, const void*, size_t, int);
ssize_t __real_sendmsg(int, const msghdr*, int);
int __real_accept4(int, sockaddr*, socklen_t*, int);
int __real_socket(int, int, int);
int __real_connect(int, const sockaddr*, socklen_t);
int __real_listen(int, int);
int __real_bind(int, const sockaddr*, socklen_t);

namespace {

// The error matters: some end a connection, others mean "try again".
int transfer_error(World& world) {
  const double draw = world.chance();
  return draw < 0.4 ? EINTR : draw < 0.8 ? EAGAIN : ECONNRESET;
}

bool fails(const char* call, int error) {
  World* world = World::current();
  if (world == nullptr) return false;
  errno = world->failing(call, error);
  return errno != 0;
}

bool transfer_fails(const char* call) {
  World* world = World::current();
  return world != nullptr && fails(call, transfer_error(*world));
}

// Sometimes less than asked, down to one byte.
size_t shortened(size_t size) {
  World* world = World::current();
  if (world == nullptr || size < 2 || world->chance() >= world->config.short_transfers) return size;
  return std::max<size_t>(1, static_cast<size_t>(world->chance() * static_cast<double>(size)));
}

}  // namespace

ssize_t __wrap_recv(int fd, void* buffer, size_t size, int flags) {
  const Below below;
  if (transfer_fails("recv")) return -1;
  return __real_recv(fd, buffer, shortened(size), flags);
}

ssize_t __wrap_recvmsg(int fd, msghdr* message, int flags) {
  const Below below;
  if ((flags & MSG_ERRQUEUE) != 0) return __real_recvmsg(fd, message, flags);
  if (transfer_fails("recvmsg")) return -1;
  if (message->msg_iovlen == 0 || shortened(2) == 2) return __real_recvmsg(fd, message, flags);
  std::size_t at = 0;  // not an empty piece: that would look like the end of the stream
  while (at + 1 < message->msg_iovlen && message->msg_iov[at].iov_len == 0) ++at;
  iovec first = message->msg_iov[at];
  first.iov_len = shortened(first.iov_len);
  msghdr less = *message;
  less.msg_iov = &first;
  less.msg_iovlen = 1;
  const ssize_t n = __real_recvmsg(fd, &less, flags);
  message->msg_controllen = less.msg_controllen;
  message->msg_flags = less.msg_flags;
  return n;
}

ssize_t __wrap_send(int fd, const void* buffer, size_t size, int flags) {
  const Below below;
  if (transfer_fails("send")) return -1;
  return __real_send(fd, buffer, shortened(size), flags);
}

ssize_t __wrap_sendmsg(int fd, const msghdr* message, int flags) {
  const Below below;
  if (transfer_fails("sendmsg")) return -1;
  if (message->msg_iovlen == 0 || shortened(2) == 2) return __real_sendmsg(fd, message, flags);
  iovec first = message->msg_iov[0];
  first.iov_len = shortened(first.iov_len);
  msghdr less = *message;
  less.msg_iov = &first;
  less.msg_iovlen = 1;
  return __real_sendmsg(fd, &less, flags);
}

int __wrap_accept4(int fd, sockaddr* address, socklen_t* size, int flags) {
  const Below below;
  if (fails("accept4", EMFILE)) return -1;
  return __real_accept4(fd, address, size, flags);
}

int __wrap_socket(int family, int type, int protocol) {
  const Below below;
  if (fails("socket", EMFILE)) return -1;
  return __real_socket(family, type, protocol);
}

int __wrap_connect(int fd, const sockaddr* address, socklen_t size) {
  const Below below;
  if (fails("connect", ENETUNREACH)) return -1;
  return __real_connect(fd, address, size);
}

int __wrap_listen(int fd, int backlog) {
  const Below below;
  if (fails("listen", EADDRINUSE)) return -1;
  return __real_listen(fd, backlog);
}

int __wrap_bind(int fd, const sockaddr* address, socklen_t size) {
  const Below below;
  if (fails("bind", EADDRINUSE)) return -1;
  return __real_bind(fd, address, size);
}

}  // extern "C"
