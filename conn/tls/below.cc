// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/below.h"

#include <linux/tls.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#include "conn/core/connection_core.h"

#ifndef SOL_TLS
#define SOL_TLS 282  // from linux/socket.h; libc headers may lack it
#endif

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

// Carrier::wait_for() waits for one direction, since a transport may have no descriptor. If both
// are needed, each is waited for in turn, for this long.
constexpr ae::Duration kTurn = std::chrono::milliseconds(1);

}  // namespace

Carrier& Below::carrier() const noexcept { return ConnectionCore::of(*connection_).carrier(); }

ssize_t Below::receive(void* buffer, std::size_t size) {
  if (made_here_.inherited()) return errno = ECANCELED, -1;
  try {
    return connection_->read(buffer, size);
  } catch (const std::bad_alloc&) {  // the exception must not pass through OpenSSL's frames
    errno = ENOMEM;
    return -1;
  }
}

ssize_t Below::transmit(const void* buffer, std::size_t size) {
  if (made_here_.inherited()) return errno = ECANCELED, -1;
  try {
    return connection_->write(buffer, size);
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return -1;
  }
}

/// See "Sending TLS control messages" in Linux, Documentation/networking/tls.rst.
ssize_t Below::transmit_record(std::uint8_t type, const void* buffer, std::size_t size) {
  if (made_here_.inherited()) return errno = ECANCELED, -1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof type)> control{};
  iovec vector{const_cast<void*>(buffer), size};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_TLS;
  header->cmsg_type = TLS_SET_RECORD_TYPE;
  header->cmsg_len = CMSG_LEN(sizeof type);
  std::memcpy(CMSG_DATA(header), &type, sizeof type);
  return ::sendmsg(connection_->fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t Below::write_plain(const iovec* vectors, int count) {
  if (made_here_.inherited()) return errno = ECANCELED, -1;  // record numbers belong to the parent
  const ssize_t n = connection_->writev(vectors, count);
  std::size_t asked = 0;
  for (int i = 0; i < count; ++i) asked += vectors[i].iov_len;
  full_ = n < 0 ? errno == EAGAIN : static_cast<std::size_t>(n) < asked;
  return n;
}

void Below::wait(bool reading, bool writing, ae::TimePoint deadline) {
  if (!reading || !writing) {
    carrier().wait_for(reading ? ae::kReadable : ae::kWritable, deadline);
    return;
  }
  const ae::TimePoint soon = std::min(deadline, std::chrono::steady_clock::now() + kTurn);
  carrier().wait_for(ae::kReadable, soon);
  carrier().wait_for(ae::kWritable, std::min(deadline, std::chrono::steady_clock::now() + kTurn));
}

bool Below::move(ae::EventLoop* to) { return ConnectionCore::of(*connection_).move(to); }

void Below::abort() noexcept {
  if (connection_) connection_.release()->abort();
}

}}}  // namespace conn::tls
