// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which side of a TLS handshake a connection is on.

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// The side of a TLS handshake.
enum class Role : bool {
  kClient,  ///< starts the handshake
  kServer   ///< presents a certificate
};

}}}  // namespace conn::tls
