// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Who the peer is, by its certificate.

#include <string>

#include "ae/abi.h"
#include "conn/tls/engine/openssl.h"
#include "conn/tls/settings.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// What the peer's certificate names it; empty if it is not verified or has no name of that kind.
std::string peer_user_of(SSL* ssl, Settings::PeerUser kind);

}}}  // namespace conn::tls
