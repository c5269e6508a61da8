// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Replies as text for people and for pipes.

#include <string>

#include "resp_reply_parser.h"

namespace kv {

/// As redis-cli prints it on a terminal; ends with a line end.
std::string format_reply(const Reply& reply);
/// As redis-cli prints it into a pipe; without the final line end.
std::string format_reply_raw(const Reply& reply);

}  // namespace kv
