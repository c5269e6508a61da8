// SPDX-License-Identifier: BSD-3-Clause
#include "conn/fallback.h"

namespace conn { inline namespace AECONN_ABI {

std::string describe(const std::vector<Skipped>& not_taken) {
  std::string text;
  for (const Skipped& each : not_taken) {
    if (!text.empty()) text += "; ";
    text.append("not ").append(each.scheme).append(": ").append(each.why.text);
  }
  return text;
}

}}  // namespace conn
