// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// kv-cli --pipe.

#include "cli_client.h"

namespace kv {

/// Sends standard input, which is RESP, and counts the replies. True if none is an error.
bool run_pipe(CliClient& client);

}  // namespace kv
