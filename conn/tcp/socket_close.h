// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Ways to close a socket at once: with a reset, or so that the peer of a Unix socket sees end of
// stream.

#include "ae/abi.h"
#include "conn/tcp/socket.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

/// Prepares `fd` so that closing it drops unsent bytes and resets the connection.
void reset_when_closed(int fd) noexcept;

/// Discards the unread input of a Unix socket and closes it, so that the peer sees end of stream.
/// A Unix socket never lingers: everything written has already reached the peer.
void close_unix(Fd fd) noexcept;

}}}  // namespace conn::tcp
