// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Option end-linger: how long the end of a loop may wait to deliver output of its connections that
// was accepted but not sent yet. Used by transports; host programs do not need it.

#include <chrono>

#include "ae/abi.h"
#include "conn/url/option_table.h"

namespace conn { inline namespace AECONN_ABI {

/// The default value of option end-linger, and its row for a transport's option table.
struct EndLinger {
  /// Default value of option end-linger. If the option is zero, Carrier::drain() is not called.
  static constexpr ae::Duration kDefault = std::chrono::milliseconds(100);
  /// Returns the row for a transport's table; values go from 0 to an hour. `meaning` is the
  /// description, as in OptionRow::meaning().
  static OptionRow row(std::string_view meaning) {
    return OptionRow::duration("end-linger", OptionSide::kBoth, kDefault, ae::Duration::zero(),
                               std::chrono::hours(1), meaning);
  }
};

}}  // namespace conn
