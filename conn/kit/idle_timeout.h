// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Option idle-timeout: a connection fails if nothing is read or written for this time. The core
// implements it for every transport; a transport has the option in its table and returns its value
// from Carrier::idle_timeout(). Used by transports; host programs do not need it.

#include <chrono>

#include "ae/abi.h"
#include "conn/url/option_table.h"

namespace conn { inline namespace AECONN_ABI {

/// The default value of option idle-timeout, and its row for a transport's option table.
struct IdleTimeout {
  /// Default value of option idle-timeout: connections without any traffic do not fail.
  static constexpr ae::Duration kDefault = ae::Duration::zero();
  /// Returns the row for a transport's table; values go from 0 to a week.
  static OptionRow row() {
    return OptionRow::duration("idle-timeout", OptionSide::kBoth, kDefault, ae::Duration::zero(),
                               std::chrono::hours(168),
                               "a connection that neither reads nor writes a byte for this long "
                               "fails; 0: none does");
  }
};

}}  // namespace conn
