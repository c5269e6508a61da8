// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The time that the end of a loop may take to deliver data its connections still hold (option
// end-linger). Used by transports; host programs do not need it.

#include <chrono>

#include "ae/abi.h"
#include "conn/url/option_table.h"

namespace conn { inline namespace AECONN_ABI {

/// The option end-linger.
struct EndLinger {
  /// The default. With zero, do_drain() is not called.
  static constexpr ae::Duration kDefault = std::chrono::milliseconds(100);
  /// The row for a transport's table, 0 to an hour; `meaning` is as in OptionRow::meaning().
  static OptionRow row(std::string_view meaning) {
    return OptionRow::duration("end-linger", OptionSide::kBoth, kDefault, ae::Duration::zero(),
                               std::chrono::hours(1), meaning);
  }
};

}}  // namespace conn
