// SPDX-License-Identifier: BSD-3-Clause
#include "conn/kit/local_addresses.h"

#include <ifaddrs.h>
#include <netinet/in.h>

#include <cstring>
#include <memory>

namespace conn { inline namespace AECONN_ABI {

SocketAddress copy_address(const sockaddr* from) noexcept {
  SocketAddress address;
  if (from->sa_family != AF_INET && from->sa_family != AF_INET6) return address;
  address.size = from->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&address.storage, from, address.size);
  return address;
}

std::vector<SocketAddress> local_addresses() {
  std::vector<SocketAddress> present;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return present;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> all(first, &freeifaddrs);
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next)
    if (each->ifa_addr != nullptr)
      if (const SocketAddress address = copy_address(each->ifa_addr); address.size != 0)
        present.push_back(address);
  return present;
}

}}  // namespace conn
