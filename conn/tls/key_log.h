// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Writing to a key log, which may be a pipe.

#include <sys/types.h>
#include <sys/uio.h>

#include <span>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// writev(2), without SIGPIPE: if `fd` is a pipe that nobody reads any more, returns -1 with errno
/// EPIPE, and the process is not signalled. A SIGPIPE that was pending before stays pending. May be
/// called on any thread.
ssize_t write_without_signal(int fd, std::span<const iovec> parts) noexcept;

}}}  // namespace conn::tls
