// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What another thread of the server asks of a connection: Valkey's replica reads a full
// synchronisation on a thread of its own, while the main thread, where our loop lives, goes on. The
// main thread reads for it.

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "drop_ins/redis/host.h"

namespace aeconn_redis {

/// As read(), from any thread but the loop's: waits until there is something, for `patience` at
/// most (EAGAIN then), and not at all while the main thread waits for this one. `why`: the
/// connection's error in words, where there is one. The server leaves the connection alone
/// meanwhile.
ssize_t read_elsewhere(ServerConnection* c, void* buffer, std::size_t size, ae::Duration patience,
                       std::string& why);
/// As sync_readline().
ssize_t readline_elsewhere(ServerConnection* c, char* line, std::size_t size, ae::Duration patience,
                           std::string& why);

}  // namespace aeconn_redis
