// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The user name of a peer, taken from its certificate (option peer-user).

#include <string>

#include "ae/abi.h"
#include "conn/tls/engine/openssl.h"
#include "conn/tls/settings.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// Returns the peer's name, of the given kind, in its certificate; empty if the certificate is not
/// verified or has no name of that kind.
std::string peer_user_of(SSL* ssl, Settings::PeerUser kind);

}}}  // namespace conn::tls
