// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Selects which of several addresses of a place an outgoing connection tries next (option spread).
// Used by transports; host programs do not need it.

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "ae/time.h"
#include "conn/kit/quota.h"
#include "conn/kit/resolver.h"
#include "conn/url/option_table.h"

namespace conn { inline namespace AECONN_ABI {

/// Values of option spread.
enum class AddressOrder : std::uint8_t {
  kFirst,  ///< in the order of the URL and the resolver
  kLeast,  ///< the address with the fewest connections; a random one of equals
  kNear,   ///< this machine's addresses, then its own networks, then others; equals as kLeast
};

/// The option row for a transport's table, with the transport's default.
AECONN_API OptionRow spread_row(AddressOrder fallback);
/// Reads the option. Throws Error for an unknown word.
AECONN_API AddressOrder spread_from(OptionReader& options);

/// An address of this machine with its network prefix length.
struct OwnAddress {
  SocketAddress address;  ///< without a port
  unsigned net_bits = 0;  ///< 24 for 10.0.0.1/24
};
/// The IPv4 and IPv6 addresses of interfaces that are up; empty if the kernel does not report them.
AECONN_API std::vector<OwnAddress> own_addresses();

/// Distance of an address, judged by this machine's own addresses.
enum class Distance : std::uint8_t {
  kHere,  ///< an address of this machine
  kLink,  ///< reachable without a router
  kFar,   ///< anything else
};
/// `own`: from own_addresses(). A loopback address is kHere regardless of `own`.
AECONN_API Distance distance(const SocketAddress& to, std::span<const OwnAddress> own) noexcept;

/// Statistics of the addresses used by connections of one type. Any thread.
class AECONN_API AddressBook {
 public:
  /// How long an address that failed is tried only after the others. Then one connection tries it,
  /// and the others use it once that connection is established.
  static constexpr ae::Duration kRest = std::chrono::seconds(10);
  /// An attempt abandoned after at least this time counts as unanswered: report a failure by
  /// told().
  static constexpr ae::Duration kSilence = std::chrono::milliseconds(100);

  /// Moves the address to try next to the front of `left`, and counts a connection to it until the
  /// returned place is destroyed. `source`: the source address of connections, unset for any. If
  /// memory runs out, and with kFirst, it moves and counts nothing.
  Quota::Place choose(AddressOrder order, std::span<SocketAddress> left,
                      const SocketAddress& source) noexcept;
  /// Reports the result of connecting to a chosen address; no error: the connection is established.
  /// Failures for lack of this process's resources (memory, descriptors) do not count against the
  /// address.
  void told(AddressOrder order, const SocketAddress& address, const std::error_code& why) noexcept;

 private:
  struct Known {
    Quota places{Quota::kMost};
    bool failed = false;    // result of the last attempt
    ae::TimePoint until{};  // of the deferral, or of another connection's attempt
  };
  struct Rank;
  Rank rank(const SocketAddress& address, Distance far, ae::TimePoint now);
  void forget_idle(ae::TimePoint now);

  ae::Mutex mutex_;
  std::map<std::string, Known> known_;  // keyed by address and port
  std::size_t forget_at_ = 64;
  std::optional<std::minstd_rand> random_;
};

}}  // namespace conn
