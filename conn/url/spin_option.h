// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The options that say how a loop waits: spin, spin-max, sleep-cost, sleep-latency.

#include <span>
#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "ae/spin.h"
#include "conn/url/option_table.h"

namespace conn { inline namespace AECONN_ABI {

/// The four options, for a transport's table.
AECONN_API std::vector<OptionRow> spin_rows();
/// "spin=no" (or 0), "auto", "fast", "always", or a time up to 100 ms; the others are times. Throws
/// Error, as Options does.
AECONN_API ae::Spin spin_from(OptionReader& options);
/// The words that `spin` takes beside a time; the first is the default. Any thread.
AECONN_API std::span<const std::string_view> spin_words() noexcept;
/// The four options of a command line, as parse_spin() takes them.
AECONN_API const OptionTable& spin_options();
/// Of a command line: "auto", or "auto&spin-max=50us&sleep-cost=5us". Throws Error.
AECONN_API ae::Spin parse_spin(std::string_view text);

}}  // namespace conn
