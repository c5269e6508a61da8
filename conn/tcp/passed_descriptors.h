// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Descriptors that a peer passes over a Unix socket (SCM_RIGHTS), although nothing here asks for
// them. The last reference to one may block the thread that drops it for as long as the peer likes:
// a TCP socket with unsent bytes and SO_LINGER, a file on FUSE. So the thread of a loop never drops
// one, neither by close() nor by letting the kernel discard a message that has one:
// - The kernel refuses them where it can (since Linux 6.16): the peer's sendmsg() fails with EPERM.
// - Elsewhere a read that finds one passes it on to a thread that closes it, and fails.
// - A socket is closed by that thread if a message with a descriptor is unread.
// All functions may be called from any thread.

#include <sys/uio.h>

#include <cstddef>
#include <span>

#include "ae/abi.h"
#include "conn/tcp/socket.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

/// Largest number of descriptors in one message: the kernel's SCM_MAX_FD.
inline constexpr std::size_t kMostPassed = 253;
/// Number of descriptors that wait to be closed from which on listeners of Unix sockets accept
/// nothing.
inline constexpr std::size_t kMostClosing = 256;

/// Lets the kernel refuse descriptors that are sent to `socket`, and to those that it accepts when
/// it listens; with `refused` false, let them pass. Without effect before Linux 6.16.
void refuse_descriptors(int socket, bool refused = true) noexcept;
/// Switches off what the kernel would tell of the sender with each message, as the socket's owner
/// had asked it to: receive_without() and peek_without() take other control data for descriptors.
void want_no_credentials(int socket) noexcept;
/// Undoes what own_unix_socket() and refuse_descriptors() have set, for a socket that a program
/// gets.
void make_ordinary(int socket) noexcept;
/// For tests: with false, refuse_descriptors() does nothing, as before Linux 6.16.
void use_kernel_refusal(bool used) noexcept;

/// Returns the owner of a Unix socket that is, or will be, connected. It finds out once whether the
/// kernel refuses descriptors for it; refuse_descriptors() has to come before, if at all.
Fd own_unix_socket(int socket) noexcept;

/// Reads from a Unix socket like recvmsg(2). If descriptors come, passes them on to the closing
/// thread and sets `came`; then the bytes returned, or the error, do not matter.
ssize_t receive_without(int socket, const iovec* vectors, int count, int flags,
                        bool& came) noexcept;
/// Looks at unread bytes like recv(2) with MSG_PEEK, without waiting. Sets `came` if descriptors
/// are among them. It returns no byte behind the first message with descriptors.
ssize_t peek_without(int socket, void* into, std::size_t size, bool& came) noexcept;

/// What peek_with() finds besides bytes.
struct Passed {
  static constexpr std::size_t kMost = 2;
  int descriptors[kMost] = {-1, -1};  ///< the caller's; the message still holds them, too
  std::size_t count = 0;
  bool more = false;  ///< whether there are more, or this process had no room for them
};
/// Looks at unread bytes, and takes at most Passed::kMost descriptors, without waiting.
ssize_t peek_with(int socket, void* into, std::size_t size, Passed& passed) noexcept;

/// Passes descriptors of a peer on to the thread that closes them.
void close_aside(std::span<const int> descriptors) noexcept;
/// Closes a listening socket: a Unix socket with connections that were not accepted on that thread,
/// as descriptors may be unread there.
void close_listening(Fd socket) noexcept;
/// Whether kMostClosing or more descriptors wait to be closed.
bool closing_lags() noexcept;
/// Number of descriptors that wait to be closed aside.
std::size_t closing_aside() noexcept;

}}}  // namespace conn::tcp
