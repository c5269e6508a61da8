// SPDX-License-Identifier: BSD-3-Clause
// Commands on keys: existence, names, expiry, iteration.

#include <fmt/format.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>

#include "divided.h"

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
    return reply_invalid_expiry(call);
  }
  if (when == kNoExpiry) --when;
  Entry* entry = call.db->find(call.argv[1], call.now_ms);
  if (entry == nullptr) return call.reply.integer(0);
  const bool forever = entry->expire_ms == kNoExpiry;
  if ((options.nx && !forever) || (options.xx && forever) ||
      (options.gt && when <= entry->expire_ms) || (options.lt && when >= entry->expire_ms)) {
    return call.reply.integer(0);  // no expiry counts as the latest one
  }
  if (when <= call.now_ms)
    call.db->erase(entry);
  else
    call.db->expire_at(entry, when);
  call.reply.integer(1);
}

void reply_expiry(Call& call, std::int64_t base_ms, Unit unit) {
  const Entry* entry = call.db->find(call.argv[1], call.now_ms);
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

template <class Keys>
void reply_keys(Call& call, const Keys& keys) {
  call.reply.array(keys.size());
  for (const std::string_view key : keys) call.reply.bulk(key);
}

void add_matching(const Call& call, const Database& db, std::vector<std::string_view>& keys) {
  const std::string_view pattern = call.argv[1];
  db.each(call.now_ms, [&](const Entry* entry) {
    if (pattern == "*" || glob_match(pattern, entry->key())) keys.push_back(entry->key());
  });
}

void reply_random(Call& call, const Entry* entry) {
  if (entry == nullptr)
    call.reply.null();
  else
    call.reply.bulk(entry->key());
}

template <class Where>
void del(Call& call, const Where& where) {
  std::int64_t removed = 0;
  for (const std::string_view key : call.argv.subspan(1)) {
    Database& db = where(key);
    if (Entry* entry = db.find(key, call.now_ms)) {
      db.erase(entry);
      ++removed;
    }
  }
  call.reply.integer(removed);
}

template <class Where>
void exists(Call& call, const Where& where) {
  std::int64_t count = 0;
  for (const std::string_view key : call.argv.subspan(1)) {
    count += call.read(where(key), key) != nullptr;
  }
  call.reply.integer(count);
}

template <class Where>
void rename(Call& call, const Where& where) {
  const std::string_view from = call.argv[1], to = call.argv[2];
  Entry* entry = where(from).find(from, call.now_ms);
  if (entry == nullptr) return call.reply.error(kNoSuchKey);
  if (from != to) {
    if (Entry* other = where(to).find(to, call.now_ms)) where(to).erase(other);
    where.rename(from, entry, to);
  }
  call.reply.ok();
}

template <class Where>
void renamenx(Call& call, const Where& where) {
  const std::string_view from = call.argv[1], to = call.argv[2];
  Entry* entry = where(from).find(from, call.now_ms);
  if (entry == nullptr) return call.reply.error(kNoSuchKey);
  if (where(to).find(to, call.now_ms) != nullptr) return call.reply.integer(0);
  where.rename(from, entry, to);
  call.reply.integer(1);
}

struct ScanOptions {
  std::uint64_t cursor = 0;
  std::int64_t count = 10;
  std::string_view pattern = "*", type = "string";
};

/// False after the error was replied.
bool parse_scan(Call& call, ScanOptions& options) {
  const auto cursor = parse_cursor(call.argv[1]);
  if (!cursor) {
    call.reply.error("ERR invalid cursor");
    return false;
  }
  options.cursor = *cursor;
  for (std::size_t i = 2; i < call.argv.size(); i += 2) {
    const bool value = i + 1 < call.argv.size();
    if (value && is_word(call.argv[i], "count")) {
      const auto number = integer_argument(call, call.argv[i + 1]);
      if (!number) return false;
      if (*number < 1) {
        call.reply.error(kSyntaxError);
        return false;
      }
      options.count = *number;
    } else if (value && is_word(call.argv[i], "match")) {
      options.pattern = call.argv[i + 1];
    } else if (value && is_word(call.argv[i], "type")) {
      options.type = call.argv[i + 1];
    } else {
      call.reply.error(kSyntaxError);
      return false;
    }
  }
  return true;
}

/// How far one SCAN may go on: so many keys, or so many buckets, so that a sparse table does not
/// make it long.
struct ScanBudget {
  explicit ScanBudget(std::int64_t count)
      : keys(count), buckets(count > INT64_MAX / 10 ? INT64_MAX : count * 10) {}
  bool spent() const noexcept { return keys <= 0 || buckets <= 0; }
  std::int64_t keys, buckets;
};

/// Steps in one database; returns the cursor. `take(key)` for those that match.
template <class Take>
std::uint64_t scan(const Call& call, Database& db, const ScanOptions& options, std::uint64_t cursor,
                   ScanBudget& budget, Take take) {
  const std::string_view pattern = options.pattern, type = options.type;
  const std::int64_t count = budget.keys;
  std::int64_t visited = 0, steps = budget.buckets;
  do {
    cursor = db.scan(cursor, call.now_ms, [&](const Entry* entry) {
      ++visited;
      if (is_word(type, "string") && (pattern == "*" || glob_match(pattern, entry->key()))) {
        take(entry->key());
      }
    });
  } while (cursor != 0 && visited < count && --steps > 0);
  budget.keys = count - visited;
  budget.buckets = steps;
  return cursor;
}

/// All shards, locked; one database of them.
class LockedDatabase {
 public:
  explicit LockedDatabase(Call& call)
      : shards_(call.server.together->shards),
        lock_(shards_, call.server.data_bytes),
        index_(call.session.database_index()) {}
  template <class Visit>
  void each(Visit visit) {
    for (std::size_t i = 0; i < shards_.count(); ++i) visit(shards_[i].store.database(index_));
  }
  std::size_t size() {
    std::size_t sum = 0;
    each([&sum](const Database& db) { sum += db.size(); });
    return sum;
  }

 private:
  Shards& shards_;
  const ShardsLock lock_;
  const std::size_t index_;
};

/// Takes the data out of all databases, or one, at one moment, and frees it in steps.
void flush_divided(Call& call, std::size_t first, std::size_t last, bool lazily) {
  constexpr std::size_t kStep = 1000;
  Shards& shards = call.server.together->shards;
  {
    const ShardsLock lock(shards, call.server.data_bytes);
    for (std::size_t i = 0; i < shards.count(); ++i) {
      for (std::size_t db = first; db < last; ++db) shards[i].store.flush(db, true);
    }
  }
  for (std::size_t i = 0; i < shards.count() && !lazily; ++i) {
    for (bool more = true; more;) {
      ShardLock lock(shards[i], call.server.data_bytes);
      more = lock.store().free_some(kStep);
    }
  }
}

}  // namespace

void del_command(Call& call) { del(call, OneDatabase(call)); }
void del_divided(Call& call) { del(call, LockedKeys(call)); }
void exists_command(Call& call) { exists(call, OneDatabase(call)); }
void exists_divided(Call& call) { exists(call, LockedKeys(call)); }

void type_command(Call& call) {
  call.reply.simple(call.db->find(call.argv[1], call.now_ms) != nullptr ? "string" : "none");
}

void keys_command(Call& call) {
  std::vector<std::string_view> keys;
  add_matching(call, *call.db, keys);
  reply_keys(call, keys);
}

void keys_divided(Call& call) {
  LockedDatabase all(call);
  std::vector<std::string_view> keys;
  all.each([&](Database& db) { add_matching(call, db, keys); });
  reply_keys(call, keys);
}

void scan_command(Call& call) {
  ScanOptions options;
  if (!parse_scan(call, options)) return;
  std::vector<std::string_view> keys;
  ScanBudget budget(options.count);
  const std::uint64_t cursor = scan(call, *call.db, options, options.cursor, budget,
                                    [&keys](std::string_view key) { keys.push_back(key); });
  call.reply.array(2);
  call.reply.bulk(fmt::format("{}", cursor));
  reply_keys(call, keys);
}

/// One shard after the other; the lower digits of the cursor are the shard's number. A key stays in
/// its shard, so what holds for each holds for all.
void scan_divided(Call& call) {
  ScanOptions options;
  if (!parse_scan(call, options)) return;
  Shards& shards = call.server.together->shards;
  std::vector<std::string> keys;  // copies: they outlive the lock
  ScanBudget budget(options.count);
  std::size_t index = options.cursor % shards.count();
  std::uint64_t cursor = options.cursor / shards.count();
  for (;; cursor = 0) {
    {
      ShardLock lock(shards[index], call.server.data_bytes);
      cursor = scan(call, lock.store().database(call.session.database_index()), options, cursor,
                    budget, [&keys](std::string_view key) { keys.emplace_back(key); });
    }
    if (cursor == 0 && ++index == shards.count()) break;
    if (budget.spent()) break;
  }
  call.reply.array(2);
  call.reply.bulk(fmt::format("{}", index == shards.count() ? 0 : cursor * shards.count() + index));
  reply_keys(call, keys);
}

void randomkey_command(Call& call) { reply_random(call, call.db->random(call.now_ms)); }

void randomkey_divided(Call& call) {
  LockedDatabase all(call);
  const Entry* entry = nullptr;
  // One whose keys have all expired is empty afterwards, and another is chosen.
  for (std::size_t size = all.size(); size > 0 && entry == nullptr; size = all.size()) {
    std::size_t skip = call.server.together->shards[0].store.random() % size;
    Database* chosen = nullptr;
    all.each([&](Database& db) {
      if (chosen == nullptr && skip < db.size()) chosen = &db;
      skip -= chosen == nullptr ? db.size() : 0;
    });
    entry = chosen->random(call.now_ms);
  }
  reply_random(call, entry);
}

void rename_command(Call& call) { rename(call, OneDatabase(call)); }
void rename_divided(Call& call) { rename(call, LockedKeys(call)); }
void renamenx_command(Call& call) { renamenx(call, OneDatabase(call)); }
void renamenx_divided(Call& call) { renamenx(call, LockedKeys(call)); }

void dbsize_command(Call& call) { call.reply.integer(static_cast<std::int64_t>(call.db->size())); }
void dbsize_divided(Call& call) {
  call.reply.integer(static_cast<std::int64_t>(LockedDatabase(call).size()));
}

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

void flushall_divided(Call& call) {
  bool lazily = false;
  if (!parse_flush(call, lazily)) return;
  flush_divided(call, 0, call.server.database_count, lazily);
  call.reply.ok();
}

void flushdb_divided(Call& call) {
  bool lazily = false;
  if (!parse_flush(call, lazily)) return;
  const std::size_t index = call.session.database_index();
  flush_divided(call, index, index + 1, lazily);
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
  Entry* entry = call.db->find(call.argv[1], call.now_ms);
  const bool had = entry != nullptr && entry->expire_ms != kNoExpiry;
  if (had) call.db->expire_at(entry, kNoExpiry);
  call.reply.integer(had ? 1 : 0);
}

}  // namespace kv
