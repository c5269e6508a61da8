// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// mistake(): turns a set-up error into the failure of a connection.

#include <system_error>

#include "ae/abi.h"
#include "conn/error.h"

namespace conn { inline namespace AECONN_ABI {

/// Returns a Failure with the sentence and the code of a set-up error. If it has no code, as for a
/// bad option, the code is EINVAL.
inline Failure mistake(const Error& error) {
  const std::error_code& code = error.code();
  return {code ? code : std::make_error_code(std::errc::invalid_argument), error.what()};
}

}}  // namespace conn
