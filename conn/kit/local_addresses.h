// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The IP addresses of this machine. Used by transports; host programs do not need it.

#include <sys/socket.h>

#include <vector>

#include "ae/abi.h"
#include "conn/kit/resolver.h"

namespace conn { inline namespace AECONN_ABI {

/// Returns a copy of an IPv4 or IPv6 address; an unset address for any other family.
AECONN_API SocketAddress copy_address(const sockaddr* from) noexcept;

/// Returns all IP addresses that this machine has at present; empty if they cannot be read.
AECONN_API std::vector<SocketAddress> local_addresses();

}}  // namespace conn
