// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// conn(7): the options of every transport in this build, from the tables that their parsers use.

#include <string>

namespace manual {

/// Returns the page as roff.
std::string conn_page(const std::string& version);
/// For tests: one line per option, "tcp\tbacklog\tL\t511\t1 to 65535\tmeaning\t\t-"; L means
/// listeners only, C connecting side only; the last column is Value::text(), the one before is
/// "tuning" for options that only an expert needs. The first column is the section of
/// docs/options.md.
std::string option_lines();

}  // namespace manual
