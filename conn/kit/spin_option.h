// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The options that say how a loop waits: spin, spin-max, sleep-cost, sleep-latency.

#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "ae/spin.h"
#include "conn/kit/option_table.h"

namespace conn::inline AECONN_ABI {

/// The four options, for a transport's table.
AECONN_API std::vector<OptionRow> spin_rows();
/// "spin=no" (or 0), "auto", "fast", "always", or a time up to 100 ms; the others are times. Throws
/// Error, as Options does.
AECONN_API ae::Spin spin_from(OptionReader& options);
/// Of a command line: "auto", or "auto&spin-max=50us&sleep-cost=5us". Throws Error.
AECONN_API ae::Spin parse_spin(std::string_view text);

}  // namespace conn::inline AECONN_ABI
