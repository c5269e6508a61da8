// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The parts of bash completion that do not depend on a program's options: functions that parse the
// command line and offer completions, and the transports of this build with their options.

#include <string>
#include <string_view>

namespace manual {

/// Returns the bash functions FUNCTION_scan and FUNCTION_value, where FUNCTION stands for
/// `function`, and those that they call.
std::string bash_functions(std::string_view function);
/// Returns the variables `schemes` and `table`, which these functions read, as lines of a function
/// body.
std::string bash_tables();

}  // namespace manual
