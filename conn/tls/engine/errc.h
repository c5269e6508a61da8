// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The error codes of failed TLS connections.

#include <system_error>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// Reasons for the failure of a TLS connection that the layer below did not cause; values of
/// Failure::code.
enum class Errc {
  /// Handshake failed: no agreement on protocol or cipher, a problem with our own certificate, or
  /// the peer sent plain text.
  kHandshake = 1,
  kVerification,  ///< a certificate was rejected, by us or, as its alert says, by the peer
  /// Option handshake-timeout or connect-timeout expired, or the handshake was evicted to make room
  /// (option max-handshakes).
  kTimeout,
  kTruncated,  ///< the peer's bytes ended without close_notify: data may be missing
  kProtocol,   ///< a TLS record or message was not allowed at that point, or could not be decrypted
  /// The peer sent too many handshake messages (KeyUpdate, tickets) for the amount of data.
  kTooManyMessages
};
/// Returns the error category of the codes in Errc.
AECONN_API const std::error_category& category() noexcept;
/// Makes an std::error_code of a TLS error code; called by the implicit conversion.
inline std::error_code make_error_code(Errc code) noexcept {
  return {static_cast<int>(code), category()};
}

}}}  // namespace conn::tls

template <>
struct std::is_error_code_enum<conn::tls::Errc> : std::true_type {};
