// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A way to close a socket at once, without delivering its unsent bytes.

#include "ae/abi.h"
#include "conn/tcp/socket.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

/// Prepares `fd` so that closing it drops unsent bytes and resets the connection.
void reset_when_closed(int fd) noexcept;

}}}  // namespace conn::tcp
