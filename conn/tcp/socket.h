// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Socket helpers for tcp, unix and vsock. Sockets are non-blocking, close-on-exec and never raise
// SIGPIPE.

#include <netinet/in.h>
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "conn/error.h"
#include "conn/kit/resolver.h"
#include "conn/peer_credentials.h"
#include "conn/tcp/settings.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

/// Owns a file descriptor and closes it on destruction. If it is a Unix socket with unread
/// descriptors of the peer, another thread closes it (conn/tcp/passed_descriptors.h).
class AECONN_API Fd {
 public:
  enum class Kind : std::uint8_t {
    kPlain,
    kUnix,        ///< a connected Unix socket whose peer cannot pass descriptors
    kUnixPassing  ///< a connected Unix socket whose peer may pass descriptors
  };
  Fd() = default;
  explicit Fd(int fd) noexcept : fd_(fd) {}
  Fd(int fd, Kind kind) noexcept : fd_(fd), kind_(kind) {}
  Fd(Fd&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), made_here_(other.made_here_), kind_(other.kind_) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
      made_here_ = other.made_here_;
      kind_ = other.kind_;
    }
    return *this;
  }
  ~Fd() { reset(); }

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  /// Returns the descriptor, which the caller then owns.
  int release() noexcept { return std::exchange(fd_, -1); }
  /// Whether the descriptor is a connected Unix socket.
  bool is_unix() const noexcept { return kind_ != Kind::kPlain; }
  /// Whether the descriptor is a Unix socket from which descriptors of the peer may arrive.
  bool passes_descriptors() const noexcept { return kind_ == Kind::kUnixPassing; }
  /// Closes the descriptor. The unread input of a Unix socket is discarded first, so that the peer
  /// sees end of stream. A Unix socket never lingers: what was written has reached the peer.
  void reset() noexcept {
    if (kind_ != Kind::kPlain) return close_unix(false);
    // close() is not repeated after EINTR: Linux has closed the descriptor by then.
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  /// Closes a Unix socket so that the peer sees a reset if input is unread. Does not wait.
  void abort_unix() noexcept { close_unix(true); }

 private:
  void close_unix(bool reset) noexcept;
  int fd_ = -1;
  ae::MadeHere made_here_;
  Kind kind_ = Kind::kPlain;
};

/// A connection that a listening socket has accepted.
struct Accepted {
  Fd fd;               ///< the socket
  SocketAddress peer;  ///< the other end of the socket
  /// Address of the client, from the header of the PROXY protocol; unset: the peer is the client.
  SocketAddress client{};
  /// Returns the client's address, as it is shown.
  std::string client_address() const { return (client.size != 0 ? client : peer).to_string(); }
};

/// Returns a new stream socket of address family `family`, of Multipath TCP if `mptcp` is true. On
/// failure returns an empty Fd and sets errno.
Fd open_socket(int family, bool mptcp = false) noexcept;

/// Stores a new stream socket in `out`, with everything that `settings` ask for. Returns the
/// failure, which names the option that could not be set; empty: none.
Failure open_socket_for(const Settings& settings, int family, Fd& out);

/// Whether a connection uses Multipath TCP. False if the kernel has fallen back to plain TCP,
/// because the peer does not support Multipath TCP.
bool speaks_mptcp(int fd) noexcept;

/// Sets the options that determine the route of a socket's packets: mark, bind-device and
/// traffic-class. Unlike apply(), it reports a failure, because packets on another route may be
/// seen by others; only the traffic class of IPv4 packets of an IPv6 socket may fail silently.
/// Returns the failure, which names the option; empty: none.
Failure apply_way(const Settings& settings, int fd, int family);

/// Sets the socket options that `settings` ask for. Also used on a listening socket: on Linux,
/// accepted sockets inherit all of these options, so accepting costs no further call.
void apply(const Settings& settings, int fd, int family) noexcept;

/// Sets the options of a socket that other code created. Unlike apply(), also turns off what
/// `settings` turn off. Buffer sizes that `settings` leave to the kernel stay unchanged.
void apply_to_adopted(const Settings& settings, int fd, int family) noexcept;

/// Binds `fd` to Settings::source, if that is set, and begins to connect it. Returns 0 if it is
/// connected, EINPROGRESS, or the errno value of the failure.
int start_connect(int fd, const SocketAddress& to, const Settings& settings) noexcept;

/// Returns the result of a connect() that was in progress and has ended: 0 or an errno value.
int connect_result(int fd) noexcept;

SocketAddress local_address_of(int fd) noexcept;
/// The process at the other end of a Unix socket; no value if the kernel does not tell.
std::optional<PeerCredentials> credentials_of(int fd) noexcept;
/// Adds the result of credentials_of() to the facts of a connection's info().
void add_credentials(int fd, std::vector<std::pair<std::string, std::string>>& facts);
SocketAddress peer_address_of(int fd) noexcept;

/// Whether `path` stands for an abstract name, which is no file: it begins with '@'.
inline bool is_abstract(const std::string& path) noexcept { return path.starts_with('@'); }

/// Returns the address of the Unix socket `path`, or of the abstract name after its '@'. Throws
/// Error if `path` or the name is empty, if a path contains a NUL byte (an abstract name may), or
/// if it does not fit into sockaddr_un; in the last case the text names the path.
SocketAddress unix_address(const std::string& path);

/// Returns how many bytes written to `fd` the peer's kernel has not acknowledged yet; 0 if the
/// local kernel cannot tell.
int unsent_bytes(int fd) noexcept;

}}}  // namespace conn::tcp
