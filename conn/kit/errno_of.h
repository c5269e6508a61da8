// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The errno value of a failure, for functions that report by errno.

#include <cerrno>
#include <system_error>

#include "ae/abi.h"
#include "conn/error.h"

namespace conn { inline namespace AECONN_ABI {

/// Returns the errno value that best matches the code of `failure`. Codes of other categories
/// (verbs, resolver, TLS) are mapped by their default error condition; if that is no errno value,
/// returns EIO.
inline int errno_of(const Failure& failure) noexcept {
  const std::error_code& code = failure.code;
  if (code.category() == std::generic_category() || code.category() == std::system_category())
    return code.value();
  const std::error_condition condition = code.default_error_condition();
  return condition.category() == std::generic_category() ? condition.value() : EIO;
}

}}  // namespace conn
