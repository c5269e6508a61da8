// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Why a TLS connection failed, as error codes.

#include <system_error>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// Why a TLS connection failed; Failure::code of those that the layer below did not cause.
enum class Errc {
  kHandshake = 1,   ///< no agreement: protocol, cipher, certificate of our own, plain text
  kVerification,    ///< a certificate was not accepted, by us or (an alert says so) by the peer
  kTimeout,         ///< longer than handshake-timeout or connect-timeout, or max-handshakes ran
  kTruncated,       ///< the stream ended without close_notify: it may have been cut short
  kProtocol,        ///< a record or message that may not be there, or does not decrypt
  kTooManyMessages  ///< handshake messages (KeyUpdate, tickets) without data between them
};
AECONN_API const std::error_category& category() noexcept;  ///< of Errc
/// For std::error_code.
inline std::error_code make_error_code(Errc code) noexcept {
  return {static_cast<int>(code), category()};
}

}}}  // namespace conn::tls

template <>
struct std::is_error_code_enum<conn::tls::Errc> : std::true_type {};
