// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The retry time in a refusal's text: a server at its limit tells a client when to try again. It is
// text, so that any other client can display it.

#include <chrono>
#include <string>
#include <string_view>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// "max-connections reached; try again in 1000 ms".
AECONN_API std::string format_retry_after(std::string_view why, std::chrono::milliseconds time);
/// The time given in such a text; 0 if there is none or it exceeds an hour.
AECONN_API std::chrono::milliseconds retry_after_in(std::string_view text) noexcept;

/// max-connections is reached: places become free as connections end.
AECONN_API std::string retry_after_when_full();
/// Too many connections are pending: places become free within the next iterations.
AECONN_API std::string retry_after_under_overload();

}}  // namespace conn
