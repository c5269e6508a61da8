// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which of several addresses of one place an outgoing connection tries next (option spread). Used
// by transports; host programs do not need it.

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

/// What option spread says.
enum class AddressOrder : std::uint8_t {
  kFirst,  ///< as the URL and the resolver have them
  kLeast,  ///< the one that the fewest connections lead to; of equals any
  kNear,   ///< of this machine, then of its own nets, then others; of equals as kLeast
};

/// The option, for a transport's table, with the transport's default.
AECONN_API OptionRow spread_row(AddressOrder fallback);
/// What the option says. Throws Error for another word.
AECONN_API AddressOrder spread_from(OptionReader& options);

/// An address of this machine, and how many of its bits are those of its net.
struct OwnAddress {
  SocketAddress address;  ///< without a port
  unsigned net_bits = 0;  ///< 24 of 10.0.0.1/24
};
/// Those of interfaces that are up, IPv4 and IPv6; empty where the kernel does not tell.
AECONN_API std::vector<OwnAddress> own_addresses();

/// How far an address is, as far as this machine's own addresses tell.
enum class Distance : std::uint8_t {
  kHere,  ///< this machine has it
  kLink,  ///< no router is between
  kFar,   ///< anything else
};
/// `own`: from own_addresses(). A loopback address is here whatever it has.
AECONN_API Distance distance(const SocketAddress& to, std::span<const OwnAddress> own) noexcept;

/// What is known of the addresses that connections of one type led to. Any thread.
class AECONN_API AddressBook {
 public:
  /// An address that could not be connected to comes after the others for so long; then one
  /// connection tries it, and the others when that one stands.
  static constexpr ae::Duration kRest = std::chrono::seconds(10);
  /// An attempt that is given up after so long was not answered: told() it as a failure.
  static constexpr ae::Duration kSilence = std::chrono::milliseconds(100);

  /// Moves the address to try next to the front of `left`, and counts it until the place is given
  /// back. `source`: where connections come from, unset for anywhere. Without memory, and with
  /// kFirst, nothing moves and nothing is counted.
  Quota::Place choose(AddressOrder order, std::span<SocketAddress> left,
                      const SocketAddress& source) noexcept;
  /// How a connect to an address that was chosen went; no error: the connection stands. What this
  /// process lacks (memory, descriptors) says nothing about the address.
  void told(AddressOrder order, const SocketAddress& address, const std::error_code& why) noexcept;

 private:
  struct Known {
    Quota places{Quota::kMost};
    bool failed = false;    // the last time
    ae::TimePoint until{};  // it rests, or another connection finds out
  };
  struct Rank;
  Rank rank(const SocketAddress& address, Distance far, ae::TimePoint now);
  void forget_idle(ae::TimePoint now);

  ae::Mutex mutex_;
  std::map<std::string, Known> known_;  // by address and port
  std::size_t forget_at_ = 64;
  std::optional<std::minstd_rand> random_;
};

}}  // namespace conn
