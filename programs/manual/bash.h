// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The parts of bash completion that do not depend on a program's options: functions that parse the
// command line and offer completions, and the transports of this build with their options.

#include <string>
#include <string_view>

namespace manual {

/// The functions FUNCTION_scan and FUNCTION_value, and those they call.
std::string bash_functions(std::string_view function);
/// The variables `schemes` and `table` that these functions read, as lines of a function body.
std::string bash_tables();

}  // namespace manual
