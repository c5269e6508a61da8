// Commands on keys: existence, names, expiry, iteration.

#include <fmt/format.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>

#include "command.h"

namespace kv {
namespace {

enum class Unit { kSeconds, kMilliseconds };

struct ExpireOptions {
  bool nx = false, xx = false, gt = false, lt = false;
};

bool parse_expire_options(Call& call, ExpireOptions& options) {
  for (const std::string_view word : call.argv.subspan(3)) {
    if (is_word(word, "nx"))
      options.nx = true;
    else if (is_word(word, "xx"))
      options.xx = true;
    else if (is_word(word, "gt"))
      options.gt = true;
    else if (is_word(word, "lt"))
      options.lt = true;
    else {
      call.reply.error(fmt::format("ERR Unsupported option {}", word.substr(0, word.find('\0'))));
      return false;
    }
  }
  if (options.nx && (options.xx || options.gt || options.lt)) {
    call.reply.error("ERR NX and XX, GT or LT options at the same time are not compatible");
    return false;
  }
  if (options.gt && options.lt) {
    call.reply.error("ERR GT and LT options at the same time are not compatible");
    return false;
  }
  return true;
}

void expire(Call& call, std::int64_t base_ms, Unit unit) {
  ExpireOptions options;
  if (!parse_expire_options(call, options)) return;
  const auto value = integer_argument(call, call.argv[2]);
  if (!value) return;
  std::int64_t when = *value;
  if ((unit == Unit::kSeconds && __builtin_mul_overflow(when, 1000, &when)) ||
      __builtin_add_overflow(when, base_ms, &when)) {
    return call.reply.error(
        fmt::format("ERR invalid expire time in '{}' command", call.command.name));
  }
  if (when == kNoExpiry) --when;
  Entry* entry = call.db.find(call.argv[1], call.now_ms);
  if (entry == nullptr) return call.reply.integer(0);
  const bool forever = entry->expire_ms == kNoExpiry;
  if ((options.nx && !forever) || (options.xx && forever) ||
      (options.gt && when <= entry->expire_ms) || (options.lt && when >= entry->expire_ms)) {
    return call.reply.integer(0);  // no expiry counts as the latest one
  }
  if (when <= call.now_ms)
    call.db.erase(entry);
  else
    call.db.expire_at(entry, when);
  call.reply.integer(1);
}

void reply_expiry(Call& call, std::int64_t base_ms, Unit unit) {
  const Entry* entry = call.db.find(call.argv[1], call.now_ms);
  if (entry == nullptr) return call.reply.integer(-2);
  if (entry->expire_ms == kNoExpiry) return call.reply.integer(-1);
  const std::int64_t left = entry->expire_ms > base_ms ? entry->expire_ms - base_ms : 0;
  call.reply.integer(unit == Unit::kMilliseconds ? left : left / 1000 + (left % 1000 >= 500));
}

/// True if SYNC, ASYNC or nothing was given.
bool parse_flush(Call& call, bool& lazily) {
  if (call.argv.size() == 1) return true;
  if (call.argv.size() == 2 && is_word(call.argv[1], "async")) return lazily = true;
  if (call.argv.size() == 2 && is_word(call.argv[1], "sync")) return true;
  call.reply.error(kSyntaxError);
  return false;
}

/// What strtoul takes as a whole, which is more than one would think ("" and "-1").
std::optional<std::uint64_t> parse_cursor(std::string_view text) {
  const std::string copy(text);
  if (std::isspace(static_cast<unsigned char>(copy.c_str()[0])) != 0) return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const std::uint64_t cursor = std::strtoull(copy.c_str(), &end, 10);
  if (*end != '\0' || errno == ERANGE) return std::nullopt;
  return cursor;
}

void reply_keys(Call& call, std::span<const std::string_view> keys) {
  call.reply.array(keys.size());
  for (const std::string_view key : keys) call.reply.bulk(key);
}

}  // namespace

void del_command(Call& call) {
  std::int64_t removed = 0;
  for (const std::string_view key : call.argv.subspan(1)) {
    if (Entry* entry = call.db.find(key, call.now_ms)) {
      call.db.erase(entry);
      ++removed;
    }
  }
  call.reply.integer(removed);
}

void exists_command(Call& call) {
  std::int64_t count = 0;
  for (const std::string_view key : call.argv.subspan(1)) count += call.read(key) != nullptr;
  call.reply.integer(count);
}

void type_command(Call& call) {
  call.reply.simple(call.db.find(call.argv[1], call.now_ms) != nullptr ? "string" : "none");
}

void keys_command(Call& call) {
  const std::string_view pattern = call.argv[1];
  std::vector<std::string_view> keys;
  call.db.each(call.now_ms, [&](const Entry* entry) {
    if (pattern == "*" || glob_match(pattern, entry->key())) keys.push_back(entry->key());
  });
  reply_keys(call, keys);
}

void scan_command(Call& call) {
  auto cursor = parse_cursor(call.argv[1]);
  if (!cursor) return call.reply.error("ERR invalid cursor");
  std::int64_t count = 10;
  std::string_view pattern = "*", type = "string";
  for (std::size_t i = 2; i < call.argv.size(); i += 2) {
    const bool value = i + 1 < call.argv.size();
    if (value && is_word(call.argv[i], "count")) {
      const auto number = integer_argument(call, call.argv[i + 1]);
      if (!number) return;
      if (*number < 1) return call.reply.error(kSyntaxError);
      count = *number;
    } else if (value && is_word(call.argv[i], "match")) {
      pattern = call.argv[i + 1];
    } else if (value && is_word(call.argv[i], "type")) {
      type = call.argv[i + 1];
    } else {
      return call.reply.error(kSyntaxError);
    }
  }
  std::vector<std::string_view> keys;
  std::int64_t visited = 0;
  // Bounded in buckets too: a sparse table must not make one step long.
  std::int64_t steps = count > INT64_MAX / 10 ? INT64_MAX : count * 10;
  do {
    *cursor = call.db.scan(*cursor, call.now_ms, [&](const Entry* entry) {
      ++visited;
      if (is_word(type, "string") && (pattern == "*" || glob_match(pattern, entry->key()))) {
        keys.push_back(entry->key());
      }
    });
  } while (*cursor != 0 && visited < count && --steps > 0);
  call.reply.array(2);
  call.reply.bulk(fmt::format("{}", *cursor));
  reply_keys(call, keys);
}

void randomkey_command(Call& call) {
  const Entry* entry = call.db.random(call.now_ms);
  if (entry == nullptr)
    call.reply.null();
  else
    call.reply.bulk(entry->key());
}

void rename_command(Call& call) {
  Entry* entry = call.db.find(call.argv[1], call.now_ms);
  if (entry == nullptr) return call.reply.error(kNoSuchKey);
  if (call.argv[1] != call.argv[2]) {
    if (Entry* other = call.db.find(call.argv[2], call.now_ms)) call.db.erase(other);
    call.db.rename(entry, call.argv[2]);
  }
  call.reply.ok();
}

void renamenx_command(Call& call) {
  Entry* entry = call.db.find(call.argv[1], call.now_ms);
  if (entry == nullptr) return call.reply.error(kNoSuchKey);
  if (call.db.find(call.argv[2], call.now_ms) != nullptr) return call.reply.integer(0);
  call.db.rename(entry, call.argv[2]);
  call.reply.integer(1);
}

void dbsize_command(Call& call) { call.reply.integer(static_cast<std::int64_t>(call.db.size())); }

void flushall_command(Call& call) {
  bool lazily = false;
  if (!parse_flush(call, lazily)) return;
  for (std::size_t i = 0; i < call.server.store.database_count(); ++i) {
    call.server.store.flush(i, lazily);
  }
  call.reply.ok();
}

void flushdb_command(Call& call) {
  bool lazily = false;
  if (!parse_flush(call, lazily)) return;
  call.server.store.flush(call.session.database_index(), lazily);
  call.reply.ok();
}

void expire_command(Call& call) { expire(call, call.now_ms, Unit::kSeconds); }
void pexpire_command(Call& call) { expire(call, call.now_ms, Unit::kMilliseconds); }
void expireat_command(Call& call) { expire(call, 0, Unit::kSeconds); }
void pexpireat_command(Call& call) { expire(call, 0, Unit::kMilliseconds); }
void ttl_command(Call& call) { reply_expiry(call, call.now_ms, Unit::kSeconds); }
void pttl_command(Call& call) { reply_expiry(call, call.now_ms, Unit::kMilliseconds); }
void expiretime_command(Call& call) { reply_expiry(call, 0, Unit::kSeconds); }
void pexpiretime_command(Call& call) { reply_expiry(call, 0, Unit::kMilliseconds); }

void persist_command(Call& call) {
  Entry* entry = call.db.find(call.argv[1], call.now_ms);
  const bool had = entry != nullptr && entry->expire_ms != kNoExpiry;
  if (had) call.db.expire_at(entry, kNoExpiry);
  call.reply.integer(had ? 1 : 0);
}

}  // namespace kv
