// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// Which side of the handshake.
enum class Role : bool {
  kClient,  ///< begins it
  kServer   ///< shows a certificate
};

}}}  // namespace conn::tls
