// SPDX-License-Identifier: BSD-3-Clause
// Commands on strings, and on strings that are numbers.

#include <algorithm>
#include <cstring>

#include "divided.h"

namespace kv {
namespace {

/// The options of SET.
struct Options {
  bool nx = false, xx = false, get = false, keep_ttl = false;
  const std::string_view* expiry = nullptr;
  std::int64_t unit = 0;  ///< of `expiry`, in milliseconds
};

/// Returns false after replying a syntax error.
bool parse_options(Call& call, Options& options) {
  for (std::size_t i = 3; i < call.argv.size(); ++i) {
    const std::string_view word = call.argv[i];
    const std::int64_t unit = is_word(word, "ex") ? 1000 : is_word(word, "px") ? 1 : 0;
    if (is_word(word, "nx") && !options.xx) {
      options.nx = true;
    } else if (is_word(word, "xx") && !options.nx) {
      options.xx = true;
    } else if (is_word(word, "get")) {
      options.get = true;
    } else if (is_word(word, "keepttl") && options.expiry == nullptr) {
      options.keep_ttl = true;
    } else if (unit != 0 && i + 1 < call.argv.size() && !options.keep_ttl &&
               (options.expiry == nullptr || options.unit == unit)) {
      // The same word again replaces the value; the other word is an error (as in Redis).
      options.unit = unit;
      options.expiry = &call.argv[++i];
    } else {
      call.reply.error(kSyntaxError);
      return false;
    }
  }
  return true;
}

/// The absolute time in milliseconds; nullopt after replying an error.
std::optional<std::int64_t> expiry_time(Call& call, const Options& options) {
  const auto value = integer_argument(call, *options.expiry);
  if (!value) return std::nullopt;
  std::int64_t when = 0;
  if (*value <= 0 || __builtin_mul_overflow(*value, options.unit, &when) ||
      __builtin_add_overflow(when, call.now_ms, &when)) {
    reply_invalid_expiry(call);
    return std::nullopt;
  }
  return when == kNoExpiry ? kNoExpiry - 1 : when;
}

/// Replies the error of a value longer than proto-max-bulk-len.
bool fits(Call& call, std::uint64_t size, std::uint64_t more) {
  const auto limit = static_cast<std::uint64_t>(call.server.config.parser.bulk);
  if (size <= limit && more <= limit - size) return true;
  call.reply.error("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
  return false;
}

void reply_value(Call& call, Entry* entry) {
  if (entry == nullptr)
    call.reply.null();
  else
    call.reply.value(*entry);
}

template <class Where>
void mset(Call& call, const Where& where) {
  if (call.argv.size() % 2 == 0) return call.reply.error(wrong_arity(call.command));
  for (std::size_t i = 1; i < call.argv.size(); i += 2) {
    call.store(where(call.argv[i]), call.argv[i], call.argv[i + 1]);
  }
  call.reply.ok();
}

template <class Where>
void mget(Call& call, const Where& where) {
  call.reply.array(call.argv.size() - 1);
  for (const std::string_view key : call.argv.subspan(1)) {
    reply_value(call, call.read(where(key), key));
  }
}

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

void get_command(Call& call) { reply_value(call, call.read(call.argv[1])); }

void set_command(Call& call) {
  if (call.argv.size() == 3) {
    call.store(*call.db, call.argv[1], call.argv[2]);
    return call.reply.ok();
  }
  Options options;
  if (!parse_options(call, options)) return;
  std::int64_t when = kNoExpiry;
  if (options.expiry != nullptr) {
    const auto time = expiry_time(call, options);
    if (!time) return;
    when = *time;
  }
  Entry* entry = options.get ? call.read(call.argv[1]) : call.db->find(call.argv[1], call.now_ms);
  if (options.get) reply_value(call, entry);
  if ((options.nx && entry != nullptr) || (options.xx && entry == nullptr)) {
    if (!options.get) call.reply.null();
    return;
  }
  entry = call.store(*call.db, entry, call.argv[1], call.argv[2], options.keep_ttl);
  if (when != kNoExpiry) call.db->expire_at(entry, when);
  if (!options.get) call.reply.ok();
}

void mset_command(Call& call) { mset(call, OneDatabase(call)); }
void mset_divided(Call& call) { mset(call, LockedKeys(call)); }
void mget_command(Call& call) { mget(call, OneDatabase(call)); }
void mget_divided(Call& call) { mget(call, LockedKeys(call)); }

void append_command(Call& call) {
  const std::string_view tail = call.argv[2];
  Entry* entry = call.db->find(call.argv[1], call.now_ms);
  if (entry == nullptr) {
    call.store(*call.db, nullptr, call.argv[1], tail);
    return call.reply.integer(static_cast<std::int64_t>(tail.size()));
  }
  const std::size_t size = entry->value_size;
  if (!fits(call, size, tail.size())) return;
  entry = call.db->resize(entry, size + tail.size(), true);
  if (!tail.empty()) std::memcpy(entry->value_bytes() + size, tail.data(), tail.size());
  call.reply.integer(static_cast<std::int64_t>(entry->value_size));
}

void strlen_command(Call& call) {
  const Entry* entry = call.read(call.argv[1]);
  call.reply.integer(entry == nullptr ? 0 : static_cast<std::int64_t>(entry->value_size));
}

void setrange_command(Call& call) {
  const auto offset = integer_argument(call, call.argv[2]);
  if (!offset) return;
  if (*offset < 0) return call.reply.error("ERR offset is out of range");
  const std::string_view part = call.argv[3];
  Entry* entry = call.db->find(call.argv[1], call.now_ms);
  const std::size_t size = entry == nullptr ? 0 : entry->value_size;
  if (part.empty()) return call.reply.integer(static_cast<std::int64_t>(size));
  const auto start = static_cast<std::size_t>(*offset);
  if (!fits(call, start, part.size())) return;
  const bool created = entry == nullptr;
  if (created) entry = call.db->set_found(nullptr, call.argv[1], {});
  const std::size_t end = start + part.size();
  if (end > size || entry->shared()) {
    try {
      entry = call.db->resize(entry, std::max(end, size), !created && end > size);
    } catch (const std::bad_alloc&) {
      if (created) call.db->erase(entry);
      throw;
    }
    if (start > size) std::memset(entry->value_bytes() + size, 0, start - size);
  }
  std::memcpy(entry->value_bytes() + start, part.data(), part.size());
  call.reply.integer(static_cast<std::int64_t>(entry->value_size));
}

void getrange_command(Call& call) {
  const auto first = integer_argument(call, call.argv[2]);
  if (!first) return;
  const auto last = integer_argument(call, call.argv[3]);
  if (!last) return;
  const Entry* entry = call.read(call.argv[1]);
  if (entry == nullptr) return call.reply.bulk({});
  const std::string_view value = entry->value();
  const auto size = static_cast<std::int64_t>(value.size());
  std::int64_t start = *first, end = *last;
  if (start < 0 && end < 0 && start > end) return call.reply.bulk({});
  if (start < 0) start = start < -size ? 0 : start + size;
  if (end < 0) end = end < -size ? 0 : end + size;
  if (end >= size) end = size - 1;
  if (start > end || size == 0) return call.reply.bulk({});
  call.reply.bulk(
      value.substr(static_cast<std::size_t>(start), static_cast<std::size_t>(end - start + 1)));
}

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

constexpr Command kTable[] = {
    {"get", 2, 0, get_command, 1, 1, 1},
    {"set", -3, kDenyOom, set_command, 1, 1, 1},
    {"mset", -3, kDenyOom, mset_command, 1, -1, 2, mset_divided},
    {"mget", -2, 0, mget_command, 1, -1, 1, mget_divided},
    {"append", 3, kDenyOom, append_command, 1, 1, 1},
    {"strlen", 2, 0, strlen_command, 1, 1, 1},
    {"setrange", 4, kDenyOom, setrange_command, 1, 1, 1},
    {"getrange", 4, 0, getrange_command, 1, 1, 1},
    {"incr", 2, kDenyOom, incr_command, 1, 1, 1},
    {"decr", 2, kDenyOom, decr_command, 1, 1, 1},
    {"incrby", 3, kDenyOom, incrby_command, 1, 1, 1},
    {"decrby", 3, kDenyOom, decrby_command, 1, 1, 1},
};

}  // namespace

std::span<const Command> string_commands() { return kTable; }

}  // namespace kv
