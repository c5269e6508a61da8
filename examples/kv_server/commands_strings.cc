// SPDX-License-Identifier: BSD-3-Clause
// Commands on strings.

#include <algorithm>
#include <cstring>

#include "divided.h"

namespace kv {
namespace {

enum class Unit { kSeconds, kMilliseconds };
enum class Base { kNow, kEpoch };

/// EX, PX, EXAT, PXAT and what else SET and GETEX understand.
struct Options {
  bool nx = false, xx = false, get = false, keep_ttl = false, persist = false;
  const std::string_view* expiry = nullptr;
  Unit unit = Unit::kSeconds;
  Base base = Base::kNow;
};

bool parse_expiry_option(std::string_view word, Options& options) {
  static constexpr struct {
    std::string_view word;
    Unit unit;
    Base base;
  } kWords[] = {{"ex", Unit::kSeconds, Base::kNow},
                {"px", Unit::kMilliseconds, Base::kNow},
                {"exat", Unit::kSeconds, Base::kEpoch},
                {"pxat", Unit::kMilliseconds, Base::kEpoch}};
  for (const auto& known : kWords) {
    if (!is_word(word, known.word)) continue;
    // The same word again replaces the value, another one is an error (as in Redis).
    if (options.expiry != nullptr && (options.unit != known.unit || options.base != known.base)) {
      return false;
    }
    options.unit = known.unit;
    options.base = known.base;
    return true;
  }
  return false;
}

/// False after the syntax error was replied.
bool parse_options(Call& call, std::size_t first, bool set, Options& options) {
  for (std::size_t i = first; i < call.argv.size(); ++i) {
    const std::string_view word = call.argv[i];
    if (set && is_word(word, "nx") && !options.xx) {
      options.nx = true;
    } else if (set && is_word(word, "xx") && !options.nx) {
      options.xx = true;
    } else if (set && is_word(word, "get")) {
      options.get = true;
    } else if (set && is_word(word, "keepttl") && options.expiry == nullptr) {
      options.keep_ttl = true;
    } else if (!set && is_word(word, "persist") && options.expiry == nullptr) {
      options.persist = true;
    } else if (i + 1 < call.argv.size() && !options.keep_ttl && !options.persist &&
               parse_expiry_option(word, options)) {
      options.expiry = &call.argv[++i];
    } else {
      call.reply.error(kSyntaxError);
      return false;
    }
  }
  return true;
}

/// The absolute time in milliseconds; nothing after an error was replied.
std::optional<std::int64_t> expiry_time(Call& call, std::string_view text, Unit unit, Base base) {
  const auto value = integer_argument(call, text);
  if (!value) return std::nullopt;
  std::int64_t when = *value;
  if (when <= 0 || (unit == Unit::kSeconds && when > INT64_MAX / 1000)) {
    reply_invalid_expiry(call);
    return std::nullopt;
  }
  if (unit == Unit::kSeconds) when *= 1000;
  if (base == Base::kNow) {
    if (when > INT64_MAX - call.now_ms) {
      reply_invalid_expiry(call);
      return std::nullopt;
    }
    when += call.now_ms;
  }
  return when == kNoExpiry ? kNoExpiry - 1 : when;
}

/// Replies the error of a value beyond proto-max-bulk-len.
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

void set_with_expiry(Call& call, Unit unit) {
  const auto when = expiry_time(call, call.argv[2], unit, Base::kNow);
  if (!when) return;
  Entry* entry = call.store(*call.db, call.argv[1], call.argv[3]);
  call.db->expire_at(entry, *when);
  call.reply.ok();
}

template <class Where>
void mset(Call& call, const Where& where) {
  if (call.argv.size() % 2 == 0) return wrong_arity(call.reply, call.command);
  for (std::size_t i = 1; i < call.argv.size(); i += 2) {
    call.store(where(call.argv[i]), call.argv[i], call.argv[i + 1]);
  }
  call.reply.ok();
}

template <class Where>
void msetnx(Call& call, const Where& where) {
  if (call.argv.size() % 2 == 0) return wrong_arity(call.reply, call.command);
  for (std::size_t i = 1; i < call.argv.size(); i += 2) {
    const std::string_view key = call.argv[i];
    if (where(key).find(key, call.now_ms) != nullptr) return call.reply.integer(0);
  }
  for (std::size_t i = 1; i < call.argv.size(); i += 2) {
    call.store(where(call.argv[i]), call.argv[i], call.argv[i + 1]);
  }
  call.reply.integer(1);
}

template <class Where>
void mget(Call& call, const Where& where) {
  call.reply.array(call.argv.size() - 1);
  for (const std::string_view key : call.argv.subspan(1)) {
    reply_value(call, call.read(where(key), key));
  }
}

}  // namespace

void get_command(Call& call) { reply_value(call, call.read(call.argv[1])); }

void set_command(Call& call) {
  if (call.argv.size() == 3) {
    call.store(*call.db, call.argv[1], call.argv[2]);
    return call.reply.ok();
  }
  Options options;
  if (!parse_options(call, 3, true, options)) return;
  std::int64_t when = kNoExpiry;
  if (options.expiry != nullptr) {
    const auto time = expiry_time(call, *options.expiry, options.unit, options.base);
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

void getset_command(Call& call) {
  Entry* entry = call.read(call.argv[1]);
  reply_value(call, entry);
  call.store(*call.db, entry, call.argv[1], call.argv[2]);
}

void getdel_command(Call& call) {
  Entry* entry = call.read(call.argv[1]);
  reply_value(call, entry);
  if (entry != nullptr) call.db->erase(entry);
}

void getex_command(Call& call) {
  Options options;
  if (!parse_options(call, 2, false, options)) return;
  Entry* entry = call.read(call.argv[1]);
  if (entry == nullptr) return call.reply.null();
  std::int64_t when = kNoExpiry;
  if (options.expiry != nullptr) {
    const auto time = expiry_time(call, *options.expiry, options.unit, options.base);
    if (!time) return;
    when = *time;
  }
  call.reply.value(*entry);
  if (when < call.now_ms)
    call.db->erase(entry);
  else if (options.expiry != nullptr || options.persist)
    call.db->expire_at(entry, when);
}

void setnx_command(Call& call) {
  if (call.db->find(call.argv[1], call.now_ms) != nullptr) return call.reply.integer(0);
  call.store(*call.db, nullptr, call.argv[1], call.argv[2]);
  call.reply.integer(1);
}

void setex_command(Call& call) { set_with_expiry(call, Unit::kSeconds); }
void psetex_command(Call& call) { set_with_expiry(call, Unit::kMilliseconds); }

void mset_command(Call& call) { mset(call, OneDatabase(call)); }
void mset_divided(Call& call) { mset(call, LockedKeys(call)); }
void msetnx_command(Call& call) { msetnx(call, OneDatabase(call)); }
void msetnx_divided(Call& call) { msetnx(call, LockedKeys(call)); }
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

}  // namespace kv
