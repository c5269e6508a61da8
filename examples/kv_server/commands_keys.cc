// SPDX-License-Identifier: BSD-3-Clause
// Commands on keys: existence, expiry, and all keys at once.

#include "divided.h"

namespace kv {
namespace {

/// `unit` is that of the argument, in milliseconds.
void expire(Call& call, std::int64_t unit) {
  const auto value = integer_argument(call, call.argv[2]);
  if (!value) return;
  std::int64_t when = 0;
  if (__builtin_mul_overflow(*value, unit, &when) ||
      __builtin_add_overflow(when, call.now_ms, &when)) {
    return reply_invalid_expiry(call);
  }
  if (when == kNoExpiry) --when;
  Entry* entry = call.db->find(call.argv[1], call.now_ms);
  if (entry == nullptr) return call.reply.integer(0);
  if (when <= call.now_ms)
    call.db->erase(entry);
  else
    call.db->expire_at(entry, when);
  call.reply.integer(1);
}

/// The milliseconds left; -1 without an expiry, -2 without the key.
std::int64_t left_ms(Call& call) {
  const Entry* entry = call.db->find(call.argv[1], call.now_ms);
  if (entry == nullptr) return -2;
  return entry->expire_ms == kNoExpiry ? -1 : entry->expire_ms - call.now_ms;
}

/// Reads SYNC, ASYNC or nothing. Returns false after replying an error.
bool parse_flush(Call& call, bool& lazily) {
  if (call.argv.size() == 1) return true;
  if (call.argv.size() == 2 && is_word(call.argv[1], "async")) return lazily = true;
  if (call.argv.size() == 2 && is_word(call.argv[1], "sync")) return true;
  call.reply.error(kSyntaxError);
  return false;
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

void del_command(Call& call) { del(call, OneDatabase(call)); }
void del_divided(Call& call) { del(call, LockedKeys(call)); }
void exists_command(Call& call) { exists(call, OneDatabase(call)); }
void exists_divided(Call& call) { exists(call, LockedKeys(call)); }

void dbsize_command(Call& call) { call.reply.integer(static_cast<std::int64_t>(call.db->size())); }

void dbsize_divided(Call& call) {
  Shards& shards = call.server.together->shards;
  const ShardsLock lock(shards, call.server.data_bytes);
  std::size_t sum = 0;
  for (std::size_t i = 0; i < shards.count(); ++i)
    sum += shards[i].store.database(call.session.database_index()).size();
  call.reply.integer(static_cast<std::int64_t>(sum));
}

void flushall_command(Call& call) {
  bool lazily = false;
  if (!parse_flush(call, lazily)) return;
  for (std::size_t i = 0; i < call.server.store.database_count(); ++i) {
    call.server.store.flush(i, lazily);
  }
  call.reply.ok();
}

/// Detaches the data of all shards at one moment, under their locks, and frees it in steps.
void flushall_divided(Call& call) {
  constexpr std::size_t kStep = 1000;
  bool lazily = false;
  if (!parse_flush(call, lazily)) return;
  Shards& shards = call.server.together->shards;
  {
    const ShardsLock lock(shards, call.server.data_bytes);
    for (std::size_t i = 0; i < shards.count(); ++i) {
      for (std::size_t db = 0; db < call.server.database_count; ++db)
        shards[i].store.flush(db, true);
    }
  }
  for (std::size_t i = 0; i < shards.count() && !lazily; ++i) {
    for (bool more = true; more;) {
      ShardLock lock(shards[i], call.server.data_bytes);
      more = lock.store().free_some(kStep);
    }
  }
  call.reply.ok();
}

void expire_command(Call& call) { expire(call, 1000); }
void pexpire_command(Call& call) { expire(call, 1); }

void ttl_command(Call& call) {
  const std::int64_t left = left_ms(call);
  call.reply.integer(left < 0 ? left : left / 1000 + (left % 1000 >= 500));
}

void pttl_command(Call& call) { call.reply.integer(left_ms(call)); }

void persist_command(Call& call) {
  Entry* entry = call.db->find(call.argv[1], call.now_ms);
  const bool had = entry != nullptr && entry->expire_ms != kNoExpiry;
  if (had) call.db->expire_at(entry, kNoExpiry);
  call.reply.integer(had ? 1 : 0);
}

constexpr Command kTable[] = {
    {"del", -2, 0, del_command, 1, -1, 1, del_divided},
    {"exists", -2, 0, exists_command, 1, -1, 1, exists_divided},
    {"expire", 3, 0, expire_command, 1, 1, 1},
    {"pexpire", 3, 0, pexpire_command, 1, 1, 1},
    {"ttl", 2, 0, ttl_command, 1, 1, 1},
    {"pttl", 2, 0, pttl_command, 1, 1, 1},
    {"persist", 2, 0, persist_command, 1, 1, 1},
    {"dbsize", 1, 0, dbsize_command, 0, 0, 0, dbsize_divided},
    {"flushall", -1, 0, flushall_command, 0, 0, 0, flushall_divided},
};

}  // namespace

std::span<const Command> key_commands() { return kTable; }

}  // namespace kv
