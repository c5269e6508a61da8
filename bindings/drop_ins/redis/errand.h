// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Reads from a connection on behalf of another thread of the server: Valkey's replica receives a
// full synchronisation on a separate thread while the main thread, which runs our loop, continues.
// The main thread does the reading.

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "drop_ins/redis/host.h"

namespace aeconn_redis {

/// Like read(), from any thread but the loop's: waits for data for at most `time_limit` (then
/// EAGAIN). While the main thread waits for the calling thread, no data can be delivered, which
/// also ends in EAGAIN. `why` receives the connection's error text, if any. The server does not use
/// the connection meanwhile.
ssize_t read_elsewhere(ServerConnection* c, void* buffer, std::size_t size, ae::Duration time_limit,
                       std::string& why);
/// Like sync_readline().
ssize_t readline_elsewhere(ServerConnection* c, char* line, std::size_t size,
                           ae::Duration time_limit, std::string& why);

}  // namespace aeconn_redis
