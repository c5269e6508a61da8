// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// kv-cli --bench.

#include <string>
#include <vector>

#include "cli_client.h"

namespace kv {

/// `count` round trips of one command (PING if it is empty), one after another; one line of result.
void run_bench(CliClient& client, std::size_t count, std::vector<std::string> command);

}  // namespace kv
