// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What completion in bash needs beside a program's own options: the functions that read the line
// and offer, and the transports of this build with their options.

#include <string>
#include <string_view>

namespace manual {

/// Functions FUNCTION_scan, FUNCTION_value and what these call.
std::string bash_functions(std::string_view function);
/// The variables `schemes` and `table` that they read, as lines of a function.
std::string bash_tables();

}  // namespace manual
