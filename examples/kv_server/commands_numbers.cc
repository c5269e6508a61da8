// SPDX-License-Identifier: BSD-3-Clause
// Strings that are numbers.

#include <cmath>

#include "command.h"

namespace kv {
namespace {

void add(Call& call, std::int64_t delta) {
  Entry* entry = call.db->find(call.argv[1], call.now_ms);
  std::int64_t value = 0;
  if (entry != nullptr) {
    const auto parsed = integer_argument(call, entry->value());
    if (!parsed) return;
    value = *parsed;
  }
  if (__builtin_add_overflow(value, delta, &value)) {
    return call.reply.error("ERR increment or decrement would overflow");
  }
  char digits[20];
  const std::string_view text(digits, format_integer(digits, value));
  call.db->set_found(entry, call.argv[1], text, true);
  call.reply.integer(value);
}

}  // namespace

void incr_command(Call& call) { add(call, 1); }
void decr_command(Call& call) { add(call, -1); }

void incrby_command(Call& call) {
  if (const auto delta = integer_argument(call, call.argv[2])) add(call, *delta);
}

void decrby_command(Call& call) {
  const auto delta = integer_argument(call, call.argv[2]);
  if (!delta) return;
  if (*delta == INT64_MIN) return call.reply.error("ERR decrement would overflow");
  add(call, -*delta);
}

void incrbyfloat_command(Call& call) {
  Entry* entry = call.db->find(call.argv[1], call.now_ms);
  std::optional<long double> value = 0;
  if (entry != nullptr) value = parse_float(entry->value());
  const auto delta = parse_float(call.argv[2]);
  if (!value || !delta) return call.reply.error(kNotFloat);
  const long double sum = *value + *delta;
  if (std::isnan(sum) || std::isinf(sum)) {
    return call.reply.error("ERR increment would produce NaN or Infinity");
  }
  const std::string text = format_float(sum);
  call.db->set_found(entry, call.argv[1], text, true);
  call.reply.bulk(text);
}

}  // namespace kv
