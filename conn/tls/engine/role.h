// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Tells the client of a TLS handshake from the server.

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// The part that a connection plays in its TLS handshake.
enum class Role : bool {
  kClient,  ///< sends the first message of the handshake
  kServer   ///< answers the client, and presents its certificate
};

}}}  // namespace conn::tls
