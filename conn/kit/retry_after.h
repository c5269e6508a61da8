// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a server says to a client that it has no room for, in the words of its refusal: when to try
// again. Text, so that any other client can show it.

#include <chrono>
#include <string>
#include <string_view>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// "max-connections reached; try again in 1000 ms".
AECONN_API std::string format_retry_after(std::string_view why, std::chrono::milliseconds time);
/// What such a text asks for; 0 if nothing, or more than an hour.
AECONN_API std::chrono::milliseconds patience_in(std::string_view text) noexcept;

/// max-connections is reached: room comes with the end of somebody's work.
AECONN_API std::string patience_when_full();
/// Too many arrive at once: room comes with the next iterations.
AECONN_API std::string retry_after_under_overload();

}}  // namespace conn
