// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A mistake made at set-up that an errno explains, for whoever tells them apart: EADDRINUSE, say.

#include <string>
#include <system_error>

#include "conn/error.h"

namespace conn { inline namespace AECONN_ABI {

/// An Error with the code of its reason.
class CodedError : public Error {
 public:
  /// `sentence` as of Error.
  CodedError(std::error_code code, const std::string& sentence) : Error(sentence), code_(code) {}
  const std::error_code& code() const noexcept { return code_; }  ///< of the reason

 private:
  std::error_code code_;
};

}}  // namespace conn
