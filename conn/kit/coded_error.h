// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A set-up error with an errno, for callers that distinguish causes such as EADDRINUSE.

#include <string>
#include <system_error>

#include "conn/error.h"

namespace conn { inline namespace AECONN_ABI {

/// An Error with an error code.
class CodedError : public Error {
 public:
  /// `sentence` as for Error.
  CodedError(std::error_code code, const std::string& sentence) : Error(sentence), code_(code) {}
  const std::error_code& code() const noexcept { return code_; }  ///< the cause

 private:
  std::error_code code_;
};

}}  // namespace conn
