// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// kv-cli --pipe.

#include <chrono>

#include "cli_client.h"

namespace kv {

/// The longest silence of the server while replies are awaited.
inline constexpr ae::Duration kPipePatience = std::chrono::seconds(30);

/// Sends standard input, which is RESP, and then an ECHO; counts the replies. Returns true if the
/// ECHO was answered and no reply was an error. Ends early if the server closes the connection or
/// asks for a password. Throws conn::Error if the server is silent for `patience`.
bool run_pipe(CliClient& client, ae::Duration patience = kPipePatience);

}  // namespace kv
