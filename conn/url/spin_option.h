// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Options spin and spin-max, which define how a loop waits for events: by sleeping, or by polling
// first.

#include <span>
#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "ae/spin.h"
#include "conn/url/option_table.h"

namespace conn { inline namespace AECONN_ABI {

/// Returns the descriptions of options spin and spin-max, for a transport's option table.
AECONN_API std::vector<OptionRow> spin_rows();
/// Returns those options about spinning that only earlier versions of the library had, for a
/// transport's option table.
AECONN_API std::vector<FormerOption> former_spin_options();
/// Reads option spin ("no" or 0, "auto", "fast", "always", or a time up to 100 ms) and option
/// spin-max (a time). Throws Error like Options.
AECONN_API ae::Spin spin_from(OptionReader& options);
/// Returns the words that option spin accepts in place of a time. The first word is the default.
/// May be called on any thread.
AECONN_API std::span<const std::string_view> spin_words() noexcept;
/// Returns a table with options spin and spin-max, which parse_spin() accepts on a command line.
AECONN_API const OptionTable& spin_options();
/// Parses a command-line option's value with the syntax of options spin and spin-max: "auto" or
/// "auto&spin-max=50us". Throws Error.
AECONN_API ae::Spin parse_spin(std::string_view text);

}}  // namespace conn
