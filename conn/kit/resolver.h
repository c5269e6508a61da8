// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Resolves host names without blocking the loop. Numeric addresses are converted directly. Names
// are resolved by getaddrinfo(3) on separate threads, because no other interface supports all
// modules of nsswitch.conf. At most four lookups run at once; one that has taken longer than 100
// ms, or whose requests were all cancelled, does not count towards the four. Requests for the same
// name share a lookup.

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/endpoint.h"
#include "conn/error.h"

namespace conn { inline namespace AECONN_ABI {

/// An address for the kernel's socket calls: IPv4, IPv6, the path of a Unix socket, or a context ID
/// and port of vsock.
struct AECONN_API SocketAddress {
  /// The address as the kernel's calls use it, beginning with its family.
  sockaddr_storage storage{};
  socklen_t size = 0;  ///< number of valid bytes in `storage`; 0: unset

  /// Returns the address for connect(2) and similar calls, as a pointer into this object.
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
  /// Returns the memory of the address, for calls that write an address. The caller must then set
  /// `size`.
  sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&storage); }
  /// Returns the family of the address: AF_INET, AF_INET6, AF_UNIX or AF_VSOCK; AF_UNSPEC if
  /// it is unset.
  int family() const noexcept { return storage.ss_family; }
  /// Port number; 0: the address has no port, or one of vsock above 65535.
  std::uint16_t port() const noexcept;
  /// Sets the port; no effect if the address has no port.
  void set_port(std::uint16_t port) noexcept;
  /// The address without the port: "10.0.0.1", "::1" (with %scope if it has one); for vsock the
  /// context ID, or "*" for any.
  std::string host() const;
  /// Address and port as host_port() joins them; a Unix socket's path, or '@' and its abstract
  /// name; "" if unset.
  std::string to_string() const;
  /// Returns whether both addresses have the same host, regardless of the port. An IPv4-mapped IPv6
  /// address equals the IPv4 address.
  bool same_host(const SocketAddress& other) const noexcept;
};

/// Stores an IPv4 or IPv6 address in 28 bytes, for objects of which there is one for each
/// connection: a SocketAddress contains a sockaddr_storage of 128 bytes. Of a Unix or vsock address
/// it stores only the family.
class CompactAddress {
 public:
  CompactAddress() = default;
  /// Stores `address`, or only its family if it is that of a Unix or vsock socket.
  explicit CompactAddress(const SocketAddress& address) noexcept {
    std::memcpy(&address_, &address.storage, std::min<std::size_t>(address.size, sizeof address_));
  }
  /// The address family, such as AF_INET6; AF_UNSPEC: there is no address.
  int family() const noexcept { return address_.sin6_family; }
  /// Returns the address; empty if it is unset or that of a Unix or vsock socket.
  SocketAddress get() const noexcept {
    SocketAddress address;
    if (family() != AF_INET && family() != AF_INET6) return address;
    address.size = family() == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address.storage, &address_, address.size);
    return address;
  }

 private:
  sockaddr_in6 address_{};
};

/// The result of resolving a host name: its addresses, or a failure.
struct Resolved {
  /// The host's addresses, in the order of RFC 6724; not empty on success.
  std::vector<SocketAddress> addresses;
  Failure failure;  ///< the reason why no addresses were found; empty on success
};

/// Returns whether the address is a loopback address: in 127.0.0.0/8, ::1, or the IPv4-mapped form
/// of an address in 127.0.0.0/8.
AECONN_API bool is_loopback(const SocketAddress& address) noexcept;

/// Converts a numeric IPv4 or IPv6 address (with %scope if it has one). Returns true and sets `out`
/// if `host` is one. May be called on any thread. Never queries a name server.
AECONN_API bool numeric_address(const std::string& host, std::uint16_t port, SocketAddress& out);

/// Resolves a host name and blocks until it is done. Thread-safe. `passive`: for listening, where
/// "*" means any IPv4 address and "::" any IPv6 address. Throws std::bad_alloc.
AECONN_API Resolved resolve(const std::string& host, std::uint16_t port, bool passive);

/// Resolves a host name for connecting, and blocks until `deadline` at the latest. If the lookup
/// takes longer, the result has the failure ETIMEDOUT; if a signal ends the wait (Interruption),
/// EINTR. The lookup then finishes in the background. Thread-safe. Throws std::bad_alloc.
AECONN_API Resolved resolve_until(const std::string& host, std::uint16_t port,
                                  ae::TimePoint deadline);

/// A request for the addresses of a host, in progress. Destroying it cancels the callback.
class AECONN_API Resolution {
 public:
  virtual ~Resolution() = default;
};
/// Resolves a host name for connecting. Calls `done` once, on the loop's thread, never before this
/// function returns. The result must be destroyed before the loop; `done` may destroy it, too.
/// Throws std::bad_alloc; if memory runs out later, Resolved::failure reports it.
AECONN_API std::unique_ptr<Resolution> resolve_async(ae::EventLoop& loop, const std::string& host,
                                                     std::uint16_t port,
                                                     std::function<void(Resolved)> done);

}}  // namespace conn
