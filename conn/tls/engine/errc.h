// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The error codes of failed TLS connections.

#include <system_error>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// Why a TLS connection failed: Failure::code of failures that the layer below did not cause.
enum class Errc {
  /// no agreement on protocol, cipher or our own certificate, or the peer sent plain text
  kHandshake = 1,
  kVerification,    ///< a certificate was rejected, by us or (according to its alert) the peer
  kTimeout,         ///< handshake-timeout or connect-timeout expired, or evicted at max-handshakes
  kTruncated,       ///< the stream ended without close_notify: it may have been cut short
  kProtocol,        ///< a record or message was not allowed at that point or did not decrypt
  kTooManyMessages  ///< too many handshake messages (KeyUpdate, tickets) for the data between them
};
AECONN_API const std::error_category& category() noexcept;  ///< the category of Errc
/// Makes Errc convertible to std::error_code.
inline std::error_code make_error_code(Errc code) noexcept {
  return {static_cast<int>(code), category()};
}

}}}  // namespace conn::tls

template <>
struct std::is_error_code_enum<conn::tls::Errc> : std::true_type {};
