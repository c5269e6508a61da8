// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The options that define how a loop waits: spin and spin-max.

#include <span>
#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "ae/spin.h"
#include "conn/url/option_table.h"

namespace conn { inline namespace AECONN_ABI {

/// Both options, as rows of a transport's table.
AECONN_API std::vector<OptionRow> spin_rows();
/// Options of earlier versions beside these, for the same table.
AECONN_API std::vector<FormerOption> former_spin_options();
/// Reads "spin=no" (or 0), "auto", "fast", "always", or a time up to 100 ms; spin-max is a
/// time. Throws Error, as Options does.
AECONN_API ae::Spin spin_from(OptionReader& options);
/// The words that `spin` accepts besides a time; the first is the default. Any thread.
AECONN_API std::span<const std::string_view> spin_words() noexcept;
/// The table of both options that parse_spin() accepts on a command line.
AECONN_API const OptionTable& spin_options();
/// Parses a command-line value: "auto", or "auto&spin-max=50us". Throws Error.
AECONN_API ae::Spin parse_spin(std::string_view text);

}}  // namespace conn
