// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Chooses which of several addresses of a host an outgoing connection tries next (option spread).
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

/// The order in which a client tries a server's addresses: the values of option spread.
enum class AddressOrder : std::uint8_t {
  kFirst,  ///< hosts in the order of the URL; the addresses of one host in the resolver's order
  /// First the address with the fewest connections; if several have the fewest, a random one of
  /// them.
  kLeast,
  /// First this machine's addresses, then those in its own networks, then others; equally near
  /// addresses in the order of kLeast.
  kNear,
};

/// Returns the description of option spread for a transport's option table. `fallback` is the
/// transport's default.
AECONN_API OptionRow spread_row(AddressOrder fallback);
/// Reads the value of option spread. Throws Error if it is none of the option's words.
AECONN_API AddressOrder spread_from(OptionReader& options);

/// One of this machine's IP addresses, with the prefix length of its network.
struct OwnAddress {
  SocketAddress address;  ///< an IP address of this machine, without a port
  unsigned net_bits = 0;  ///< prefix length of the address's network: 24 for 10.0.0.1/24
};
/// Returns the IPv4 and IPv6 addresses of all interfaces that are up; empty if the kernel does not
/// report them.
AECONN_API std::vector<OwnAddress> own_addresses();

/// The distance of an address from this machine, judged by the addresses that this machine has.
enum class Distance : std::uint8_t {
  kHere,  ///< the address belongs to this machine
  kLink,  ///< the address is in a network of this machine, reachable without a router
  kFar,   ///< the address is neither on this machine nor in its networks
};
/// Returns how far `to` is from this machine. `own` comes from own_addresses(). A loopback address
/// is always kHere.
AECONN_API Distance distance(const SocketAddress& to, std::span<const OwnAddress> own) noexcept;

/// Counts the connections to each address, for the connections of one transport, and remembers
/// addresses that failed. Thread-safe.
class AECONN_API AddressBook {
 public:
  /// For this time an address that has failed is tried only after the other addresses. Then one
  /// connection tries it, and the others use it again once that connection is established.
  static constexpr ae::Duration kRest = std::chrono::seconds(10);
  /// If an attempt is abandoned after at least this time without an answer, the caller must report
  /// a failure of the address with report().
  static constexpr ae::Duration kSilence = std::chrono::milliseconds(100);

  /// Chooses the address that is to be tried next, and moves it to the front of `left`. Counts a
  /// connection to that address until the returned place is destroyed. `source`: the connections'
  /// source address; unset: any. With AddressOrder::kFirst, or if memory runs out, the order stays
  /// unchanged and nothing is counted.
  Quota::Place choose(AddressOrder order, std::span<SocketAddress> left,
                      const SocketAddress& source) noexcept;
  /// Records the result of connecting to an address that choose() returned; an empty `why`: the
  /// connection is established. Failures for lack of this process's own resources (memory,
  /// descriptors) do not count against the address.
  void report(AddressOrder order, const SocketAddress& address,
              const std::error_code& why) noexcept;

 private:
  struct Known {
    Quota places{Quota::kMost};
    bool failed = false;  // true if the last attempt to connect to the address failed
    // Time until which the address is tried only after all others: after a failure, or while
    // another connection tries it.
    ae::TimePoint until{};
  };
  struct Rank;
  Rank rank(const SocketAddress& address, Distance far, ae::TimePoint now);
  void forget_idle(ae::TimePoint now);

  ae::Mutex mutex_;
  // What is known about each address; the key is the address with its port.
  std::map<std::string, Known> known_;
  std::size_t forget_at_ = 64;
  std::optional<std::minstd_rand> random_;
};

}}  // namespace conn
