// SPDX-License-Identifier: BSD-3-Clause
#include "programs/manual/roff.h"

namespace manual {

std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";  // a literal hyphen-minus, at which lines do not break
    else if (c == '~')
      out += "\\(ti";
    else if (c == '^')
      out += "\\(ha";
    else if (c == '`')
      out += "\\(ga";
    else if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n'))
      out.append("\\&").push_back(c);
    else
      out += c;
  }
  return out;
}
std::string bold(std::string_view text) { return "\\fB" + plain(text) + "\\fR"; }

}  // namespace manual
