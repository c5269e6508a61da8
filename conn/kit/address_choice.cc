// SPDX-License-Identifier: BSD-3-Clause
#include "conn/kit/address_choice.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <memory>
#include <tuple>

namespace conn { inline namespace AECONN_ABI {
namespace {

// Time after which a failed address is forgotten if no connection uses it.
constexpr ae::Duration kMemory = std::chrono::minutes(10);
constexpr unsigned kAllBits = 128;

/// Returns the bytes of an IPv4 or IPv6 address in network byte order; empty for any other address
/// family.
std::span<const std::uint8_t> bytes_of(const sockaddr* address) noexcept {
  if (address->sa_family == AF_INET) {
    const auto* four = reinterpret_cast<const sockaddr_in*>(address);
    return {reinterpret_cast<const std::uint8_t*>(&four->sin_addr), sizeof four->sin_addr};
  }
  if (address->sa_family != AF_INET6) return {};
  return reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr.s6_addr;
}

std::uint32_t scope_of(const SocketAddress& address) noexcept {
  if (address.family() != AF_INET6) return 0;
  const auto* six = reinterpret_cast<const sockaddr_in6*>(address.get());
  return IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr) ? six->sin6_scope_id : 0;
}

unsigned leading_ones(std::span<const std::uint8_t> bytes) noexcept {
  unsigned all = 0;
  for (const std::uint8_t each : bytes) {
    const auto ones = static_cast<unsigned>(std::countl_one(each));
    all += ones;
    if (ones != 8) break;
  }
  return all;
}

bool same_net(const SocketAddress& one, const SocketAddress& other, unsigned bits) noexcept {
  if (one.family() != other.family() || scope_of(one) != scope_of(other)) return false;
  const auto left = bytes_of(one.get()), right = bytes_of(other.get());
  const std::size_t whole = std::min<std::size_t>(bits / 8, left.size());
  if (left.empty() ||
      !std::equal(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(whole), right.begin()))
    return false;
  if (whole == left.size() || bits % 8 == 0) return true;
  const auto mask = static_cast<std::uint8_t>(0xff << (8 - bits % 8));
  return ((left[whole] ^ right[whole]) & mask) == 0;
}

constexpr std::array kOrders{OptionWord{"first", AddressOrder::kFirst},
                             OptionWord{"least", AddressOrder::kLeast},
                             OptionWord{"near", AddressOrder::kNear}};

bool lacking_here(const std::error_code& why) noexcept {
  return why == std::errc::not_enough_memory || why == std::errc::too_many_files_open ||
         why == std::errc::too_many_files_open_in_system || why == std::errc::no_buffer_space;
}

}  // namespace

OptionRow spread_row(AddressOrder fallback) {
  return OptionRow::word("spread", OptionSide::kConnecting, kOrders, fallback,
                         "which of several addresses is tried first");
}

AddressOrder spread_from(OptionReader& options) { return options.pick("spread", kOrders); }

std::vector<OwnAddress> own_addresses() {
  std::vector<OwnAddress> all;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return all;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, &freeifaddrs);
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if ((each->ifa_flags & IFF_UP) == 0 || each->ifa_addr == nullptr) continue;
    if (bytes_of(each->ifa_addr).empty()) continue;
    OwnAddress own;
    own.address.size = each->ifa_addr->sa_family == AF_INET ? socklen_t{sizeof(sockaddr_in)}
                                                            : socklen_t{sizeof(sockaddr_in6)};
    std::memcpy(&own.address.storage, each->ifa_addr, own.address.size);
    const sockaddr* mask = each->ifa_netmask;
    own.net_bits = mask != nullptr ? leading_ones(bytes_of(mask)) : kAllBits;
    all.push_back(own);
  }
  return all;
}

Distance distance(const SocketAddress& to, std::span<const OwnAddress> own) noexcept {
  if (is_loopback(to)) return Distance::kHere;
  Distance least = Distance::kFar;
  for (const OwnAddress& each : own) {
    if (same_net(to, each.address, kAllBits)) return Distance::kHere;
    if (same_net(to, each.address, each.net_bits)) least = Distance::kLink;
  }
  return least;
}

// --- AddressBook: the connections and failures of each address -----------------------------------

struct AddressBook::Rank {
  // Until this time the address is tried only after all others, because it has failed; zero: it has
  // not.
  ae::TimePoint rests_until;
  Distance distance;
  std::uint64_t connections;
  std::minstd_rand::result_type draw;
  auto operator<=>(const Rank&) const = default;
};

AddressBook::Rank AddressBook::rank(const SocketAddress& address, Distance far, ae::TimePoint now) {
  Rank rank{{}, far, 0, (*random_)()};
  const auto found = known_.find(address.to_string());
  if (found == known_.end()) return rank;
  if (found->second.failed && now < found->second.until) rank.rests_until = found->second.until;
  rank.connections = found->second.places.taken();
  return rank;
}

// Forgets addresses that are not in use, which limits the memory of a process that has used
// thousands of them. The next call does this only once the number of addresses has doubled, so that
// the cost for each new address is constant on average.
void AddressBook::forget_idle(ae::TimePoint now) {
  if (known_.size() < forget_at_) return;
  std::erase_if(known_, [&](const auto& each) {
    const Known& known = each.second;
    return known.places.taken() == 0 && (!known.failed || now >= known.until + kMemory);
  });
  forget_at_ = std::max<std::size_t>(64, 2 * known_.size());
}

Quota::Place AddressBook::choose(AddressOrder order, std::span<SocketAddress> left,
                                 const SocketAddress& source) noexcept {
  if (order == AddressOrder::kFirst || left.empty()) return {};
  try {
    std::vector<OwnAddress> own;
    if (order == AddressOrder::kNear && left.size() > 1) own = own_addresses();
    if (source.size != 0)
      std::erase_if(own, [&](const OwnAddress& each) { return !each.address.same_host(source); });
    const ae::TimePoint now = std::chrono::steady_clock::now();
    const std::lock_guard lock(mutex_);
    if (!random_) random_.emplace(std::random_device{}());
    forget_idle(now);
    const auto rank_of = [&](const SocketAddress& each) {
      const bool near = order == AddressOrder::kNear;
      return rank(each, near ? distance(each, own) : Distance::kFar, now);
    };
    auto best = left.begin();
    Rank least = rank_of(*best);
    for (auto each = best + 1; each != left.end(); ++each) {
      const Rank its = rank_of(*each);
      if (its < least) {
        best = each;
        least = its;
      }
    }
    Known& known = known_[best->to_string()];
    // Until this attempt has a result, other connections try the address only after all others.
    if (known.failed) known.until = now + kRest;
    std::rotate(left.begin(), best, best + 1);
    return known.places.take();
  } catch (const std::exception&) {
    return {};
  }
}

void AddressBook::report(AddressOrder order, const SocketAddress& address,
                         const std::error_code& why) noexcept {
  if (order == AddressOrder::kFirst || (why && lacking_here(why))) return;
  try {
    const std::string name = address.to_string();
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(name);
    if (found == known_.end()) return;
    found->second.failed = static_cast<bool>(why);
    found->second.until = std::chrono::steady_clock::now() + kRest;
  } catch (const std::exception&) {
    // There is no memory to record the result. The next attempt to connect reports its own result.
  }
}

}}  // namespace conn
