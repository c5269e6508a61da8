// SPDX-License-Identifier: BSD-3-Clause
#include "tests/support/socket_calls.h"

#include <dlfcn.h>
#include <linux/errqueue.h>
#include <sys/socket.h>

#include <cerrno>

using testing::SocketCalls;

namespace {

thread_local SocketCalls* watched = nullptr;

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

void note(bool sent, const iovec* pieces, std::size_t count, int flags, ssize_t result) {
  if (watched == nullptr) return;
  const int before = errno;
  ++watched->calls;
  for (std::size_t i = 0; i < count; ++i)
    watched->pieces.push_back(
        {pieces[i].iov_base, pieces[i].iov_len, sent, watched->calls, flags, result});
  if (watched->after != nullptr) watched->after();
  errno = before;
}

bool refused(int flags) {
  if (watched == nullptr || (flags & MSG_ZEROCOPY) == 0 || watched->refuse_zero_copy == 0)
    return false;
  --watched->refuse_zero_copy;
  errno = ENOBUFS;
  return true;
}

}  // namespace

extern "C" {

__attribute__((weak)) ssize_t send(int fd, const void* data, size_t size, int flags) {
  static const auto call = real<ssize_t(int, const void*, size_t, int)>("send");
  if (refused(flags)) return -1;
  const ssize_t result = call(fd, data, size, flags);
  const iovec piece{const_cast<void*>(data), size};
  note(true, &piece, 1, flags, result);
  return result;
}

__attribute__((weak)) ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  static const auto call = real<ssize_t(int, const msghdr*, int)>("sendmsg");
  const ssize_t result = call(fd, message, flags);
  note(true, message->msg_iov, message->msg_iovlen, flags, result);
  return result;
}

__attribute__((weak)) ssize_t recv(int fd, void* data, size_t size, int flags) {
  static const auto call = real<ssize_t(int, void*, size_t, int)>("recv");
  const ssize_t result = call(fd, data, size, flags);
  const iovec piece{data, size};
  note(false, &piece, 1, flags, result);
  return result;
}

__attribute__((weak)) ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static const auto call = real<ssize_t(int, msghdr*, int)>("recvmsg");
  const ssize_t result = call(fd, message, flags);
  if ((flags & MSG_ERRQUEUE) == 0) {
    note(false, message->msg_iov, message->msg_iovlen, flags, result);
  } else if (result >= 0 && watched != nullptr) {
    ++watched->completions;
    cmsghdr* const first = CMSG_FIRSTHDR(message);
    if (watched->hide_copies && first != nullptr)
      reinterpret_cast<sock_extended_err*>(CMSG_DATA(first))->ee_code = 0;
  }
  return result;
}

}  // extern "C"

namespace testing {

SocketCalls::SocketCalls() { watched = this; }
SocketCalls::~SocketCalls() { watched = nullptr; }

int SocketCalls::sends(bool zero_copy) const {
  int count = 0, last = 0;
  for (const Piece& piece : pieces) {
    if (!piece.sent || piece.result <= 0 || piece.call == last) continue;
    last = piece.call;
    if (((piece.flags & MSG_ZEROCOPY) != 0) == zero_copy) ++count;
  }
  return count;
}

}  // namespace testing
