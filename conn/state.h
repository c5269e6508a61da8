// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The states of a connection, and settings of its handlers.

#include <cstdint>
#include <string_view>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// The state of a connection. Transitions are one-way.
enum class State : std::uint8_t {
  kNone,        ///< just created by create()
  kConnecting,  ///< connect() is in progress
  kAccepting,   ///< a handshake is in progress, before the accept handler runs
  kConnected,   ///< reads and writes work, including after the peer's half-close
  kClosed,      ///< both directions have ended without an error
  kError,       ///< the connection has failed; last_error() has the reason
};
/// The name of a state, for logs: "connected".
AECONN_API std::string_view to_string(State state) noexcept;

/// Whether the write handler runs before the read handler when both are due in one iteration.
enum class Barrier : bool {
  kNo,  ///< the read handler runs first
  kYes  ///< the write handler runs first
};

/// Which events run a close handler.
enum class CloseOn : bool {
  kEnd,     ///< the end of the peer's stream, or a failure
  kFailure  ///< only a failure
};

}}  // namespace conn
