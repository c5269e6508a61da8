// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What kv-cli does besides running commands.

#include <string>
#include <vector>

#include "cli_client.h"

namespace kv {

/// Sends standard input, which is RESP, and counts the replies. True if none is an error.
bool run_pipe(CliClient& client);
/// `count` round trips of one command (PING if it is empty), one after another; one line of result.
void run_bench(CliClient& client, std::size_t count, std::vector<std::string> command);

}  // namespace kv
