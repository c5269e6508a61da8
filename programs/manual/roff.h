// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Text for roff (groff_man(7)).

#include <string>
#include <string_view>

namespace manual {

/// Text of which roff takes nothing for its own.
std::string plain(std::string_view text);
std::string bold(std::string_view text);

}  // namespace manual
