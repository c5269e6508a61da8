// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The options that say how a loop waits: spin, spin-max, sleep-cost, sleep-latency.

#include <string_view>
#include <vector>

#include "ae/spin.h"
#include "conn/option_table.h"

namespace conn {

/// The four options, for a transport's table.
std::vector<OptionRow> spin_rows();
/// "spin=no" (or 0), "auto", "fast", "always", or a time up to 100 ms; the others are times. Throws
/// Error, as Options does.
ae::Spin spin_from(OptionReader& options);
/// Of a command line: "auto", or "auto&spin-max=50us&sleep-cost=5us". Throws Error.
ae::Spin parse_spin(std::string_view text);

}  // namespace conn
