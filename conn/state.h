// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The states of a connection.

#include <cstdint>
#include <string_view>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// Connection state. Transitions are one-way.
enum class State : std::uint8_t {
  kNone,        ///< created by create()
  kConnecting,  ///< connect() is in progress
  kAccepting,   ///< handshake in progress, before the accept handler runs
  kConnected,   ///< reads and writes work, also after the peer's half-close
  kClosed,      ///< both directions ended without an error
  kError,       ///< failed; last_error() has the reason
};
AECONN_API std::string_view to_string(State state) noexcept;  ///< "connected", for logs

/// Whether the write handler runs before the read handler when both are due in one iteration.
enum class Barrier : bool {
  kNo,  ///< the read handler runs first
  kYes  ///< the write handler runs first
};

/// Selects the events that run a close handler.
enum class CloseOn : bool {
  kEnd,     ///< the end of the peer's stream, or a failure
  kFailure  ///< only a failure
};

}}  // namespace conn
