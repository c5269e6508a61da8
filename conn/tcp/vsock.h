// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What vsock has in common with no other socket: its options and its addresses.

#include "ae/abi.h"
#include "conn/endpoint.h"
#include "conn/kit/resolver.h"
#include "conn/tcp/settings.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

/// Returns the settings of vsock with `options` applied. Throws Error for an unknown option or a
/// bad value.
Settings vsock_settings(const Options& options);
const OptionTable& vsock_options();  ///< returns the table of options that vsock_settings() accepts

/// Returns the address of a vsock endpoint, where "*" is any context ID; unset if it has no such
/// host.
SocketAddress vsock_address(const Endpoint& endpoint);

/// Sets the context ID of this machine in `local`, the address of a socket that is connected to
/// `peer`: for a client's socket the kernel says "any". Leaves it if the kernel does not tell.
void set_own_cid(SocketAddress& local, const SocketAddress& peer) noexcept;

/// Returns the address of an endpoint whose host needs no look-up: of unix or vsock. Unset for
/// others. Throws Error like unix_address().
SocketAddress fixed_address(const Endpoint& endpoint);

}}}  // namespace conn::tcp
