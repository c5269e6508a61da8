// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The states of a connection, and settings of its handlers.

#include <cstdint>
#include <string_view>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// The state of a connection. Transitions are one-way.
enum class State : std::uint8_t {
  kNone,        ///< create() has made the connection; connect() was not called yet
  kConnecting,  ///< connect() has been called, and the connection is not established yet
  kAccepting,   ///< the listener's side performs a handshake; the accept handler has not run yet
  kConnected,   ///< the connection is established, including after the peer's half-close
  kClosed,      ///< both directions of the connection have ended without an error
  kError,       ///< the connection has failed; last_error() has the reason
};
/// Returns the name of a state, for logs: "connected".
AECONN_API std::string_view to_string(State state) noexcept;

/// Says which of the read handler and the write handler runs first if both are due in one
/// iteration.
enum class Barrier : bool {
  kNo,  ///< the read handler runs before the write handler
  kYes  ///< the write handler runs before the read handler
};

/// Says which events run a connection's close handler.
enum class CloseOn : bool {
  kEnd,     ///< the close handler runs at the end of the peer's stream, or at a failure
  kFailure  ///< the close handler runs only at a failure
};

}}  // namespace conn
