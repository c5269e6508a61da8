// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/passed_descriptors.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "ae/core/fork.h"
#include "ae/core/signals_off.h"
#include "ae/once.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {
namespace {

// SO_PASSRIGHTS and SO_PASSPIDFD, which older C libraries do not name.
constexpr int kPassRights = 83, kPassPidfd = 76;

std::atomic<bool> kernel_refusal{true};

/// Room for the control data of `Most` descriptors. It is not set to zero, because the kernel fills
/// it.
template <std::size_t Most>
struct Control {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(Most * sizeof(int))> bytes;
};

/// Copies at most `most` descriptors of a received message to `out`. Returns how many it copied.
std::size_t descriptors_of(msghdr& message, int* out, std::size_t most) noexcept {
  std::size_t count = 0;
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr;
       each = CMSG_NXTHDR(&message, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t here = std::min((each->cmsg_len - CMSG_LEN(0)) / sizeof(int), most - count);
    std::memcpy(out + count, CMSG_DATA(each), here * sizeof(int));
    count += here;
  }
  return count;
}

// --- the thread that closes descriptors ----------------------------------------------------------

/// Prepares a descriptor to be closed: closing a socket will drop its unsent bytes instead of
/// waiting for them. Returns whether closing the descriptor is certain not to block. No call in
/// this function reaches a file system, because the peer may control it.
bool disarm(int fd) noexcept {
  int family = 0;
  socklen_t size = sizeof family;
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size) == 0) {
    const linger drop{1, 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &drop, sizeof drop);
    return family != AF_UNIX;  // closing a Unix socket may block: it may have unread descriptors
  }
  return fcntl(fd, F_GET_SEALS) >= 0 || fcntl(fd, F_GETPIPE_SZ) >= 0;
}

/// Closes those descriptors that can be closed without blocking, and removes them from `fds`.
void close_some(std::vector<int>& fds) noexcept {
  std::erase_if(fds, [](int fd) { return disarm(fd) && (::close(fd), true); });
}

/// Reads all unread messages of a connection, so that disarm() prepares each descriptor in them
/// before it is closed, and closes the socket. Does so for each connection that waits in the
/// backlog of a listening socket. The socket must be empty when it is closed: if a loop is handling
/// an event of it, the kernel frees it, with all that it still holds, on the loop's thread.
void drain_and_close(int socket) noexcept {
  ::shutdown(socket, SHUT_RDWR);  // now neither bytes of the peer nor new connections can arrive
  for (int waiting; (waiting = ::accept4(socket, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;)
    drain_and_close(waiting);
  std::array<char, 16 * 1024> discarded;
  const iovec room{discarded.data(), discarded.size()};
  for (;;) {
    Control<kMostPassed> control;
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(&room);
    message.msg_iovlen = 1;
    message.msg_control = control.bytes.data();
    message.msg_controllen = control.bytes.size();
    if (::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) <= 0) break;
    std::array<int, kMostPassed> fds;
    const std::size_t count = descriptors_of(message, fds.data(), fds.size());
    const auto last = std::partition(fds.begin(), fds.begin() + count, disarm);
    std::for_each(fds.begin(), last, ::close);
    std::for_each(last, fds.begin() + count, ::close);
  }
  ::close(socket);
}

/// The descriptors that wait to be closed, and the thread that closes them. The thread ends when
/// nothing is left.
class Closer {
 public:
  /// Returns the only instance.
  static Closer& get() {
    return ae::once([] { return Closer(); });
  }
  std::size_t count() const noexcept { return count_.load(std::memory_order_relaxed); }

  void add(std::span<const int> passed, int socket) noexcept {
    const std::lock_guard lock(mutex_);
    notice_fork();
    try {
      passed_.insert(passed_.end(), passed.begin(), passed.end());
      count_ += passed.size();
      if (socket >= 0) {
        sockets_.push_back(socket);
        ++count_;
      }
    } catch (const std::bad_alloc&) {
      // Without memory the descriptors stay open: this is better than a loop that waits.
    }
    run();
  }
  bool lags() noexcept {
    if (count() == 0) return false;
    const std::lock_guard lock(mutex_);
    notice_fork();
    run();
    return count() >= kMostClosing;
  }

 private:
  /// In a child of fork(), records that the thread does not exist. The descriptors that it was
  /// closing at the time of fork() stay open in the child.
  void notice_fork() noexcept {
    if (!made_here_.inherited()) return;
    made_here_.renew();
    running_ = false;
    count_ = passed_.size() + sockets_.size();
  }
  /// Starts the thread if there is work and it does not run. If that fails, the next call tries
  /// again.
  void run() noexcept {
    if (running_ || count() == 0) return;
    try {
      const ae::SignalsOff off;  // blocks signals: the program's own threads handle them
      std::thread([this] { work(); }).detach();
      running_ = true;
    } catch (const std::exception&) {
    }
  }
  void work() noexcept {
    for (;;) {
      std::vector<int> passed, sockets;
      {
        const std::lock_guard lock(mutex_);
        passed.swap(passed_);
        sockets.swap(sockets_);
        if (passed.empty() && sockets.empty()) {
          running_ = false;
          return;
        }
      }
      const std::size_t all = passed.size();
      close_some(passed);
      count_ -= all - passed.size();
      for (const int socket : sockets) {
        drain_and_close(socket);
        --count_;
      }
      for (const int fd : passed) {
        ::close(fd);
        --count_;
      }
    }
  }

  ae::Mutex mutex_;
  std::vector<int> passed_;  // descriptors that peers passed and that are to be closed
  // Sockets with unread messages that contain descriptors: connections, and listening sockets that
  // have connections in their backlogs.
  std::vector<int> sockets_;
  // Number of descriptors in passed_ and sockets_, and of those that the thread is closing now.
  std::atomic<std::size_t> count_{0};
  bool running_ = false;
  ae::MadeHere made_here_;
};

// Makes the object before main(), so that closing a descriptor later needs no memory for it.
[[maybe_unused]] const Closer& closer_made = Closer::get();

}  // namespace

// --- settings of sockets, and reading without descriptors ----------------------------------------

void use_kernel_refusal(bool used) noexcept { kernel_refusal = used; }

void refuse_descriptors(int socket, bool refused) noexcept {
  const int passes = refused ? 0 : 1;
  if (kernel_refusal) (void)setsockopt(socket, SOL_SOCKET, kPassRights, &passes, sizeof passes);
}

void want_no_credentials(int socket) noexcept {
  const int no = 0;
  for (const int what : {SO_PASSCRED, SO_PASSSEC, kPassPidfd})
    (void)setsockopt(socket, SOL_SOCKET, what, &no, sizeof no);
}

void make_ordinary(int socket) noexcept {
  const int no = 0;
  refuse_descriptors(socket, false);
  (void)setsockopt(socket, SOL_SOCKET, SO_OOBINLINE, &no, sizeof no);
}

bool refuses_descriptors(int socket) noexcept {
  int passes = 1;
  socklen_t size = sizeof passes;
  return getsockopt(socket, SOL_SOCKET, kPassRights, &passes, &size) == 0 && passes == 0;
}

Fd own_unix_socket(int socket) noexcept {
  if (refuses_descriptors(socket)) return {socket, Fd::Kind::kUnix};
  // Without SO_OOBINLINE a read would discard a message that was sent with MSG_OOB, with its
  // descriptors.
  const int yes = 1;
  (void)setsockopt(socket, SOL_SOCKET, SO_OOBINLINE, &yes, sizeof yes);
  return {socket, Fd::Kind::kUnixPassing};
}

ssize_t receive_without(int socket, const iovec* vectors, int count, int flags,
                        bool& came) noexcept {
  if (Closer::get().count() != 0) {
    // Until earlier descriptors are closed, no others are received: only bytes that come without
    // descriptors are read.
    while (count > 1 && vectors->iov_len == 0) ++vectors, --count;
    const ssize_t n = peek_without(socket, vectors->iov_base, vectors->iov_len, came);
    if (n <= 0 || came) return n;
    return ::recv(socket, vectors->iov_base, static_cast<std::size_t>(n), flags);
  }
  Control<kMostPassed> control;
  msghdr message;
  message.msg_name = nullptr;
  message.msg_namelen = 0;
  message.msg_iov = const_cast<iovec*>(vectors);
  message.msg_iovlen = static_cast<std::size_t>(count);
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  message.msg_flags = 0;
  const ssize_t n = ::recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
  if (n < 0 || (message.msg_controllen == 0 && (message.msg_flags & MSG_CTRUNC) == 0)) [[likely]]
    return n;
  std::array<int, kMostPassed> fds;
  const std::size_t passed = descriptors_of(message, fds.data(), fds.size());
  if (passed != 0 || (message.msg_flags & MSG_CTRUNC) != 0) came = true;
  if (passed != 0) close_aside({fds.data(), passed});
  return n;
}

ssize_t peek_without(int socket, void* into, std::size_t size, bool& came) noexcept {
  iovec vector{into, size};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  // Because there is no room for control data, the kernel sets MSG_CTRUNC if there is any.
  // Descriptors stay in the unread message.
  const ssize_t n = ::recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT);
  if (n >= 0 && (message.msg_flags & MSG_CTRUNC) != 0) came = true;
  return n;
}

ssize_t peek_with(int socket, void* into, std::size_t size, Passed& passed) noexcept {
  iovec vector{into, size};
  Control<Passed::kMost> control;
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  ssize_t n;
  do n = ::recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  if (n < 0) return n;
  passed.count = descriptors_of(message, passed.descriptors, Passed::kMost);
  passed.more = (message.msg_flags & MSG_CTRUNC) != 0;
  return n;
}

void close_aside(std::span<const int> descriptors) noexcept { Closer::get().add(descriptors, -1); }
bool closing_lags() noexcept { return Closer::get().lags(); }
std::size_t closing_aside() noexcept { return Closer::get().count(); }

// --- closing Unix sockets ------------------------------------------------------------------------

void Fd::close_unix(bool reset) noexcept {
  const int fd = release();
  if (fd < 0) return;
  const bool passing = std::exchange(kind_, Kind::kPlain) == Kind::kUnixPassing;
  // In a child of fork() only closes its copy of the descriptor: shutdown() would act on the socket
  // of the parent. A reset needs only close(), unless there may be unread descriptors.
  if (made_here_.inherited() || (reset && !passing)) {
    ::close(fd);
    return;
  }
  // After shutdown() the peer can send no more, so the loop that discards unread bytes ends. With
  // `reset` it leaves some bytes unread, because closing a Unix socket with unread bytes resets it;
  // SHUT_RD keeps the peer from seeing end of stream before the reset.
  ::shutdown(fd, reset ? SHUT_RD : SHUT_RDWR);
  std::array<char, 16 * 1024> discarded;
  for (;;) {
    ssize_t n = 0;
    if (passing) {
      bool came = false;
      n = peek_without(fd, discarded.data(), discarded.size(), came);
      if (came) return Closer::get().add({}, fd);
      if (n <= 0 || (reset && static_cast<std::size_t>(n) < discarded.size())) break;
      if (reset) --n;
    }
    n = ::recv(fd, discarded.data(), passing ? static_cast<std::size_t>(n) : discarded.size(),
               MSG_DONTWAIT);
    // If reading fails, descriptors may still be unread in the socket: another thread closes it.
    if (n <= 0 && passing) return Closer::get().add({}, fd);
    if (n == 0 || (n < 0 && errno != EINTR)) break;
  }
  ::close(fd);
}

void close_listening(Fd socket, bool shared) noexcept {
  pollfd waiting{socket.get(), POLLIN, 0};
  if (!socket || ::poll(&waiting, 1, 0) <= 0) return;
  int family = 0;
  socklen_t size = sizeof family;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_DOMAIN, &family, &size) != 0 || family != AF_UNIX)
    return;
  if (refuses_descriptors(socket.get())) return;
  const int fd = socket.release();
  if (shared)
    close_aside({&fd, 1});
  else
    Closer::get().add({}, fd);
}

}}}  // namespace conn::tcp
