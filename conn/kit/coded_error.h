// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// CodedError: a set-up error with an errno, for callers that distinguish causes such as EADDRINUSE.

#include <string>
#include <system_error>

#include "conn/error.h"

namespace conn { inline namespace AECONN_ABI {

/// An Error with an error code.
class CodedError : public Error {
 public:
  /// `sentence` is the text of the Error, for the user.
  CodedError(std::error_code code, const std::string& sentence) : Error(sentence), code_(code) {}
  const std::error_code& code() const noexcept { return code_; }  ///< the code of the cause

 private:
  std::error_code code_;
};

}}  // namespace conn
