// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Handles descriptors that a peer passes over a Unix socket (SCM_RIGHTS), although conn/tcp never
// asks for them. Dropping the last reference to such a descriptor may block a thread for as long as
// the peer likes, for example if it is a TCP socket with unsent bytes and SO_LINGER, or a file on
// FUSE. So the thread of a loop must never drop such a reference, neither by close() nor by letting
// the kernel discard a message that contains a descriptor:
// - The kernel refuses descriptors where it can (since Linux 6.16): the peer's sendmsg() fails with
//   EPERM.
// - Elsewhere a read that receives a descriptor passes it to a thread that closes it, and fails.
// - A socket with an unread message that contains a descriptor is closed by that thread.
// All functions may be called from any thread.

#include <sys/uio.h>

#include <cstddef>
#include <span>

#include "ae/abi.h"
#include "conn/tcp/socket.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

/// Largest number of descriptors in one message: the kernel's SCM_MAX_FD.
inline constexpr std::size_t kMostPassed = 253;
/// If at least this number of descriptors wait to be closed, listeners of Unix sockets accept no
/// connections.
inline constexpr std::size_t kMostClosing = 256;

/// Makes the kernel refuse descriptors that are sent to `socket` or, if it is a listening socket,
/// to the sockets that it accepts. With `refused` false, makes the kernel let them pass. Without
/// effect before Linux 6.16.
void refuse_descriptors(int socket, bool refused = true) noexcept;
/// Whether the kernel refuses descriptors that are sent to `socket`; false before Linux 6.16.
bool refuses_descriptors(int socket) noexcept;
/// Switches off the control data about the sender (such as credentials) that the socket's owner may
/// have requested for each message: receive_without() and peek_without() would take it for
/// descriptors.
void want_no_credentials(int socket) noexcept;
/// Undoes the settings of own_unix_socket() and refuse_descriptors(), for a socket that is given to
/// a program.
void make_ordinary(int socket) noexcept;
/// For tests: with false, refuse_descriptors() does nothing, as before Linux 6.16.
void use_kernel_refusal(bool used) noexcept;

/// Returns an Fd that owns a Unix socket which is, or will be, connected. Determines whether the
/// kernel refuses descriptors for the socket, so refuse_descriptors() must be called before, if at
/// all.
Fd own_unix_socket(int socket) noexcept;

/// Reads from a Unix socket like recvmsg(2). If descriptors arrive, passes them to the thread that
/// closes descriptors and sets `came`; the returned bytes or error must then be ignored.
ssize_t receive_without(int socket, const iovec* vectors, int count, int flags,
                        bool& came) noexcept;
/// Looks at unread bytes like recv(2) with MSG_PEEK, without waiting. Sets `came` if there are
/// descriptors among them. Returns no byte after the first message with descriptors.
ssize_t peek_without(int socket, void* into, std::size_t size, bool& came) noexcept;

/// The descriptors that peek_with() has found.
struct Passed {
  static constexpr std::size_t kMost = 2;
  /// The descriptors found, owned by the caller. The message, still unread, contains them, too.
  int descriptors[kMost] = {-1, -1};
  std::size_t count = 0;
  bool more = false;  ///< true if not all were taken: the array was full, or no descriptor was free
};
/// Looks at unread bytes, and takes at most Passed::kMost descriptors, without waiting.
ssize_t peek_with(int socket, void* into, std::size_t size, Passed& passed) noexcept;

/// Passes descriptors that came from a peer to the thread that closes them.
void close_aside(std::span<const int> descriptors) noexcept;
/// Closes a listening socket. If it is a Unix socket with connections that were not accepted, the
/// thread that closes descriptors does it, because there may be unread descriptors in these
/// connections. They are read before that, except if the socket is `shared`: other processes may
/// still listen on it.
void close_listening(Fd socket, bool shared) noexcept;
/// Whether kMostClosing or more descriptors wait to be closed. If any do and the thread that closes
/// them could not be started, tries again.
bool closing_lags() noexcept;
/// Number of descriptors that wait for the thread that closes them.
std::size_t closing_aside() noexcept;

}}}  // namespace conn::tcp
