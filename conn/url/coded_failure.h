// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// coded_failure(): makes a Failure whose text is built at run time, also if there is no memory for
// the text.

#include <new>
#include <system_error>

#include "ae/abi.h"
#include "conn/error.h"

namespace conn { inline namespace AECONN_ABI {

/// Returns a Failure with the code `code` and the text that `text()` returns. If there is no memory
/// for that text, the Failure has the text of out_of_memory() instead.
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
