// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// kv-cli --pipe.

#include <chrono>

#include "cli_client.h"

namespace kv {

/// How long the server may be silent while replies are awaited.
inline constexpr ae::Duration kPipePatience = std::chrono::seconds(30);

/// Sends standard input, which is RESP, and counts the replies. True if none is an error. Ends as
/// soon as the server closes the connection, asks for a password or refuses the last command, which
/// is ours. Throws conn::Error if it is silent for `patience`.
bool run_pipe(CliClient& client, ae::Duration patience = kPipePatience);

}  // namespace kv
