// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Options spin and spin-max, which define how a loop waits.

#include <span>
#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "ae/spin.h"
#include "conn/url/option_table.h"

namespace conn { inline namespace AECONN_ABI {

/// Returns the rows of both options, for a transport's table.
AECONN_API std::vector<OptionRow> spin_rows();
/// Returns the related options of earlier versions that no longer exist, for the same table.
AECONN_API std::vector<FormerOption> former_spin_options();
/// Reads option spin ("no" or 0, "auto", "fast", "always", or a time up to 100 ms) and option
/// spin-max (a time). Throws Error like Options.
AECONN_API ae::Spin spin_from(OptionReader& options);
/// Returns the words that option spin accepts besides a time; the first is the default. Any thread.
AECONN_API std::span<const std::string_view> spin_words() noexcept;
/// Returns the table of both options, which parse_spin() accepts on a command line.
AECONN_API const OptionTable& spin_options();
/// Parses the value of a command-line option, "auto" or "auto&spin-max=50us". Throws Error.
AECONN_API ae::Spin parse_spin(std::string_view text);

}}  // namespace conn
