// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The states of a connection.

#include <cstdint>
#include <string_view>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// Of a connection. It only goes on, never back.
enum class State : std::uint8_t {
  kNone,        ///< fresh from create()
  kConnecting,  ///< connect() runs
  kAccepting,   ///< accepted below, handshake running; not yet seen by the accept handler
  kConnected,   ///< reads and writes work; also after the peer's half-close
  kClosed,      ///< both directions ended without an error
  kError,       ///< dead; last_error() says why
};
AECONN_API std::string_view to_string(State state) noexcept;  ///< "connected", for logs

/// Whether the write handler runs before the read handler when both are due in one iteration.
enum class Barrier : bool {
  kNo,  ///< reads come first
  kYes  ///< writes come first
};

}}  // namespace conn
