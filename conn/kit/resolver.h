// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Host names to addresses, without stopping the loop. Numeric addresses never leave the thread;
// names are looked up by getaddrinfo(3) on threads of their own, since nothing else honours
// nsswitch.conf with all of its modules. Four lookups begin at once. One that takes longer than
// 100 ms, or that nobody waits for any more, no longer keeps others from beginning. Requests for
// the same name share a lookup.

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

/// An address as the kernel takes it: IPv4, IPv6, or the path of a Unix socket.
struct AECONN_API SocketAddress {
  sockaddr_storage storage{};  ///< of the family in it
  socklen_t size = 0;          ///< bytes of `storage` that count; 0: it is unset

  /// For connect(2) and its like; points into this.
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
  /// The same for calls that write it; they say `size`.
  sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const noexcept { return storage.ss_family; }  ///< AF_INET, ...; AF_UNSPEC if unset
  std::uint16_t port() const noexcept;                       ///< 0 where there is none
  void set_port(std::uint16_t port) noexcept;                ///< no-op where there is none
  std::string host() const;       ///< "10.0.0.1", "::1" (with %scope where there is one)
  std::string to_string() const;  ///< host_port(), or the path of a Unix socket; "" if unset
  bool same_host(const SocketAddress& other) const noexcept;  ///< v4-mapped IPv6 equals IPv4
};

/// What a lookup found.
struct Resolved {
  std::vector<SocketAddress> addresses;  ///< in the order of RFC 6724, never empty on success
  Failure failure;                       ///< why there are none, in words; else empty
};

/// 127.0.0.0/8, ::1, and the former as IPv6.
AECONN_API bool is_loopback(const SocketAddress& address) noexcept;

/// Any thread; never asks a name server. True, with `out` set, if `host` is an IPv4 or IPv6 address
/// in digits (with %scope where it has one).
AECONN_API bool numeric_address(const std::string& host, std::uint16_t port, SocketAddress& out);

/// Blocks; any thread. Throws std::bad_alloc. `passive`: for listening; "*" is any IPv4 and "::"
/// any IPv6 address.
AECONN_API Resolved resolve(const std::string& host, std::uint16_t port, bool passive);

/// The same for connecting, until `deadline` at most: a lookup that takes longer fails with
/// ETIMEDOUT and ends by itself on its thread.
AECONN_API Resolved resolve_until(const std::string& host, std::uint16_t port,
                                  ae::TimePoint deadline);

/// A lookup under way; dropping it cancels the callback.
class AECONN_API Resolution {
 public:
  virtual ~Resolution() = default;
};
/// Calls `done` once, on the loop's thread and never before it returns. Drop the result before the
/// loop; `done` may do that, too. Throws std::bad_alloc; a lookup that lacks memory later says so
/// by Resolved::failure.
AECONN_API std::unique_ptr<Resolution> resolve_async(ae::EventLoop& loop, const std::string& host,
                                                     std::uint16_t port,
                                                     std::function<void(Resolved)> done);

}}  // namespace conn
