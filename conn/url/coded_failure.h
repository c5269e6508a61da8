// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// coded_failure(): a Failure whose text may need more memory than there is.

#include <new>
#include <system_error>

#include "ae/abi.h"
#include "conn/error.h"

namespace conn { inline namespace AECONN_ABI {

/// Returns a Failure with the code `code` and the text that `text()` returns. Without memory for
/// that text, it has the text of out_of_memory().
template <class Text>
Failure coded_failure(std::error_code code, Text text) noexcept {
  Failure why = out_of_memory();
  why.code = code;
  try {
    why.text = text();
  } catch (const std::bad_alloc&) {
  }
  return why;
}

}}  // namespace conn
