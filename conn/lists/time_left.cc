// SPDX-License-Identifier: BSD-3-Clause
#include "conn/lists/time_left.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

#include "conn/connection_type.h"
#include "conn/url/option_table.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

/// Returns the text of `left`, rounded up to milliseconds, plus 1 ms; in the range of `option`.
std::string time_left(const OptionRow& option, ae::Duration left) {
  constexpr std::chrono::milliseconds kMore(1);
  const ae::Duration least(static_cast<std::int64_t>(option.min()));
  const ae::Duration most(static_cast<std::int64_t>(option.max()));
  if (left >= most - 2 * kMore) return time_words(most);
  left = std::chrono::ceil<std::chrono::milliseconds>(left) + kMore;
  return time_words(std::max(least, left));
}

}  // namespace

Endpoint with_time(const Candidate& candidate, ae::Duration left) {
  Endpoint to = candidate.to;
  if (const OptionRow* const row = candidate.type->find_option("connect-timeout"))
    to.options.set("connect-timeout", time_left(*row, left));
  return to;
}

}}  // namespace conn
