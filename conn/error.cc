// SPDX-License-Identifier: BSD-3-Clause
#include "conn/error.h"

namespace conn::inline AECONN_ABI {

std::string errno_text(int err) { return std::generic_category().message(err); }

Failure errno_failure(int err, const std::string& what) {
  return {std::error_code(err, std::generic_category()), what + ": " + errno_text(err)};
}

Failure out_of_memory() noexcept {
  return {std::make_error_code(std::errc::not_enough_memory), "out of memory"};
}

}  // namespace conn::inline AECONN_ABI
