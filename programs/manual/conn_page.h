// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// conn(7): the options of every transport of this build, from the tables that their parsers read.

#include <string>

namespace manual {

/// The page in roff.
std::string conn_page(const std::string& version);
/// For tests: a line for each option, "tcp\tbacklog\tL\t511\t1 to 65535\tmeaning\t-", L for
/// listeners alone, C for the connecting side alone; the last is Value::text(). The first column is
/// the section of docs/options.md.
std::string option_lines();

}  // namespace manual
