// SPDX-License-Identifier: BSD-3-Clause
// Commands on the data: strings, numbers and keys.

#include <cstring>

#include "command.h"

namespace kv {
namespace {

[[gnu::always_inline]] inline void reply_value(Call& call, Entry* entry) {
  if (entry == nullptr)
    call.reply.null();
  else
    call.reply.value(*entry);
}

void get_command(Call& call) { reply_value(call, call.read()); }

/// SET key value [NX | XX] [GET]
void set_command(Call& call) {
  bool nx = false, xx = false, get = false;
  for (std::size_t i = 3; i < call.argv.size(); ++i) {
    const std::string_view word = call.argv[i];
    if (is_word(word, "nx") && !xx)
      nx = true;
    else if (is_word(word, "xx") && !nx)
      xx = true;
    else if (is_word(word, "get"))
      get = true;
    else
      return call.reply.error(kSyntaxError);
  }
  Entry* const entry = get ? call.read() : call.find();
  if (get) reply_value(call, entry);
  if (!(nx && entry != nullptr) && !(xx && entry == nullptr)) {
    call.store(*call.shard, entry, call.key, call.argv[2]);
    if (!get) call.reply.ok();
  } else if (!get) {
    call.reply.null();
  }
}

/// Calls `visit` for the shard and the index of every `step`-th argument, a key, from the first on.
/// All of their shards are locked meanwhile.
template <class Visit>
void each_key(Call& call, std::size_t step, Visit visit) {
  Store& store = call.server.store;
  const ShardsLock lock(store, call.argv.subspan(1), step);
  for (std::size_t i = 1; i < call.argv.size(); i += step) {
    const Key key = store.key(call.argv[i]);
    Shard& shard = store.of(key);
    const Growth growth(shard, call.server.data_bytes);
    visit(shard, key, i);
  }
}

void mset_command(Call& call) {
  if (call.argv.size() % 2 == 0) return call.reply.error(wrong_arity(call.command));
  each_key(call, 2, [&call](Shard& shard, const Key& key, std::size_t i) {
    call.store(shard, shard.find(key), key, call.argv[i + 1]);
  });
  call.reply.ok();
}

void mget_command(Call& call) {
  call.reply.array(call.argv.size() - 1);
  each_key(call, 1, [&call](Shard& shard, const Key& key, std::size_t) {
    reply_value(call, call.read(shard, key));
  });
}

void del_command(Call& call) {
  std::int64_t removed = 0;
  each_key(call, 1, [&removed](Shard& shard, const Key& key, std::size_t) {
    Entry* const entry = shard.find(key);
    if (entry == nullptr) return;
    shard.erase(entry);
    ++removed;
  });
  call.reply.integer(removed);
}

void exists_command(Call& call) {
  std::int64_t count = 0;
  each_key(call, 1, [&](Shard& shard, const Key& key, std::size_t) {
    count += call.read(shard, key) != nullptr;
  });
  call.reply.integer(count);
}

void append_command(Call& call) {
  const std::string_view tail = call.argv[2];
  Entry* entry = call.find();
  const std::size_t size = entry == nullptr ? 0 : entry->value_size;
  const auto limit = static_cast<std::uint64_t>(call.server.config.parser.bulk);
  if (size > limit || tail.size() > limit - size) {
    return call.reply.error("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
  }
  if (entry == nullptr) {
    call.store(*call.shard, nullptr, call.key, tail);
  } else {
    entry = call.shard->lengthen(entry, size + tail.size());
    if (!tail.empty()) std::memcpy(entry->value_bytes() + size, tail.data(), tail.size());
  }
  call.reply.integer(static_cast<std::int64_t>(size + tail.size()));
}

void strlen_command(Call& call) {
  const Entry* entry = call.read();
  call.reply.integer(entry == nullptr ? 0 : static_cast<std::int64_t>(entry->value_size));
}

void add(Call& call, std::int64_t delta) {
  Entry* entry = call.find();
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
  call.shard->set(entry, call.key, {digits, format_integer(digits, value)});
  call.reply.integer(value);
}

void incr_command(Call& call) { add(call, 1); }
void decr_command(Call& call) { add(call, -1); }
void incrby_command(Call& call) {
  if (const auto delta = integer_argument(call, call.argv[2])) add(call, *delta);
}

void dbsize_command(Call& call) {
  const ShardsLock lock(call.server.store);
  call.reply.integer(static_cast<std::int64_t>(call.server.store.size()));
}

/// FLUSHALL [ASYNC | SYNC]: the words make no difference.
void flushall_command(Call& call) {
  const ShardsLock lock(call.server.store);
  for (Shard& shard : call.server.store.shards()) {
    const Growth growth(shard, call.server.data_bytes);
    shard.clear();
  }
  call.reply.ok();
}

constexpr Command kDataTable[] = {
    {"get", 2, kOneKey, get_command},
    {"set", -3, kDenyOom | kOneKey, set_command},
    {"mset", -3, kDenyOom, mset_command},
    {"mget", -2, 0, mget_command},
    {"append", 3, kDenyOom | kOneKey, append_command},
    {"strlen", 2, kOneKey, strlen_command},
    {"incr", 2, kDenyOom | kOneKey, incr_command},
    {"decr", 2, kDenyOom | kOneKey, decr_command},
    {"incrby", 3, kDenyOom | kOneKey, incrby_command},
    {"del", -2, 0, del_command},
    {"exists", -2, 0, exists_command},
    {"dbsize", 1, 0, dbsize_command},
    {"flushall", -1, 0, flushall_command},
};

}  // namespace

std::span<const Command> data_commands() { return kDataTable; }

}  // namespace kv
