// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Functions for vsock sockets: their addresses and errors.

#include <optional>
#include <string>

#include "ae/abi.h"
#include "conn/endpoint.h"
#include "conn/kit/resolver.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

/// Returns the address of a vsock endpoint, where "*" is any context ID; unset if the host is
/// neither a number nor "*".
SocketAddress vsock_address(const Endpoint& endpoint);

/// Sets the context ID of this machine in `local`, the own address of a socket that is connected to
/// `peer`: for a client's socket the kernel reports "any". Leaves `local` unchanged if the kernel
/// does not report the ID.
void set_own_cid(SocketAddress& local, const SocketAddress& peer) noexcept;

/// Returns whether both ends of a connected vsock socket are on this machine; no value if the
/// kernel does not tell.
std::optional<bool> is_same_machine(int fd) noexcept;

/// Returns the text of the error `err` of a vsock socket, with what to do if something is missing
/// on this machine.
std::string vsock_error_text(int err);

/// Returns the address of an endpoint whose host needs no look-up: of unix or vsock. Unset for
/// others. Throws Error like unix_address().
SocketAddress fixed_address(const Endpoint& endpoint);

}}}  // namespace conn::tcp
