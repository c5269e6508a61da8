// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The time that a server asks a refused client to wait before the next attempt. It is part of the
// text of the refusal, as plain text, so that clients of any kind can display it.

#include <chrono>
#include <string>
#include <string_view>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// Returns a text with a reason and the time after which to try again: "max-connections reached;
/// try again in 1000 ms".
AECONN_API std::string format_retry_after(std::string_view why, std::chrono::milliseconds time);
/// Returns the time in a text that format_retry_after() has made; 0 if there is none or it exceeds
/// an hour.
AECONN_API std::chrono::milliseconds retry_after_in(std::string_view text) noexcept;

/// Returns the text with which a server refuses a client because of option max-connections. It asks
/// the client to try again later, when connections may have ended.
AECONN_API std::string retry_after_when_full();
/// Returns the text for a client that is refused because too many connections are pending. It asks
/// the client to try again soon: the server sets pending connections up within its loop's next
/// iterations.
AECONN_API std::string retry_after_under_overload();

}}  // namespace conn
