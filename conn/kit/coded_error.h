// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// CodedError: a set-up error with an error code, for callers that distinguish causes such as
// EADDRINUSE. mistake() turns a set-up error into the failure of a connection.

#include <string>
#include <system_error>

#include "conn/error.h"

namespace conn { inline namespace AECONN_ABI {

/// An Error that also has an error code.
class CodedError : public Error {
 public:
  /// Creates an Error with the text `sentence`, for the user, and an error code for the program.
  CodedError(std::error_code code, const std::string& sentence) : Error(sentence), code_(code) {}
  /// The error code of the cause, such as EADDRINUSE.
  const std::error_code& code() const noexcept { return code_; }

 private:
  std::error_code code_;
};

/// Returns a Failure with the sentence of a set-up error and its code: that of a CodedError, or
/// EINVAL for any other, such as a bad option.
inline Failure mistake(const Error& error) {
  std::error_code code;
  if (const auto* const coded = dynamic_cast<const CodedError*>(&error)) code = coded->code();
  return {code ? code : std::make_error_code(std::errc::invalid_argument), error.what()};
}

}}  // namespace conn
