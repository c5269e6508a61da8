// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Resolves host names without blocking the loop. Numeric addresses are converted directly; names
// are resolved by getaddrinfo(3) on separate threads, since nothing else honours nsswitch.conf with
// all of its modules. Up to four lookups run at once; a lookup that takes longer than 100 ms, or
// whose requests were all cancelled, does not count towards the four. Requests for the same name
// share a lookup.

#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/endpoint.h"
#include "conn/error.h"

namespace conn { inline namespace AECONN_ABI {

/// A socket address for the kernel: IPv4, IPv6, or the path of a Unix socket.
struct AECONN_API SocketAddress {
  sockaddr_storage storage{};  ///< the family is in it
  socklen_t size = 0;          ///< valid bytes of `storage`; 0: unset

  /// For connect(2) and similar calls; points into this object.
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
  /// For calls that write the address and set `size`.
  sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const noexcept { return storage.ss_family; }  ///< AF_INET, ...; AF_UNSPEC if unset
  std::uint16_t port() const noexcept;                       ///< 0 if it has none
  void set_port(std::uint16_t port) noexcept;                ///< no-op if it has none
  std::string host() const;       ///< "10.0.0.1", "::1" (with %scope if it has one)
  std::string to_string() const;  ///< host_port(), or the path of a Unix socket; "" if unset
  bool same_host(const SocketAddress& other) const noexcept;  ///< v4-mapped IPv6 equals IPv4
};

/// Result of a lookup.
struct Resolved {
  std::vector<SocketAddress> addresses;  ///< in the order of RFC 6724; not empty on success
  Failure failure;                       ///< why there are no addresses; otherwise empty
};

/// Whether it is in 127.0.0.0/8, ::1, or an IPv4-mapped address of 127.0.0.0/8.
AECONN_API bool is_loopback(const SocketAddress& address) noexcept;

/// Any thread; never queries a name server. Returns true and sets `out` if `host` is a numeric IPv4
/// or IPv6 address (with %scope if it has one).
AECONN_API bool numeric_address(const std::string& host, std::uint16_t port, SocketAddress& out);

/// Blocks; any thread. Throws std::bad_alloc. `passive`: for listening; "*" is any IPv4 and "::"
/// any IPv6 address.
AECONN_API Resolved resolve(const std::string& host, std::uint16_t port, bool passive);

/// The same for connecting, until `deadline`: a lookup that takes longer fails with ETIMEDOUT, and
/// finishes in the background on its thread.
AECONN_API Resolved resolve_until(const std::string& host, std::uint16_t port,
                                  ae::TimePoint deadline);

/// A lookup in progress; destroying it cancels the callback.
class AECONN_API Resolution {
 public:
  virtual ~Resolution() = default;
};
/// Calls `done` once, on the loop's thread and never before this function returns. Destroy the
/// result before the loop; `done` may destroy it, too. Throws std::bad_alloc; if memory runs out
/// later, Resolved::failure reports it.
AECONN_API std::unique_ptr<Resolution> resolve_async(ae::EventLoop& loop, const std::string& host,
                                                     std::uint16_t port,
                                                     std::function<void(Resolved)> done);

}}  // namespace conn
