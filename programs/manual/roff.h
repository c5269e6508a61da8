// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Escapes text for roff (groff_man(7)).

#include <string>
#include <string_view>

namespace manual {

/// Escapes `text` so that roff interprets nothing in it.
std::string plain(std::string_view text);
std::string bold(std::string_view text);

}  // namespace manual
