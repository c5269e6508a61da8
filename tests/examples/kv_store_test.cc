// SPDX-License-Identifier: BSD-3-Clause
// The store: compared with a map, while resizing, with expiry and memory accounting.

#include <map>
#include <random>
#include <string>

#include "examples/kv_server/store.h"
#include "tests/support/catch.h"

using kv::Database;
using kv::Entry;
using kv::Store;

TEST_CASE("store: SipHash-1-3 gives its reference values", "[kv]") {
  // The key and first input lengths of the reference implementation's test vectors.
  const kv::HashSeed seed{0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
  std::string input;
  const std::uint64_t expected[] = {0xabac0158050fc4dcu, 0xc9f49bf37d57ca93u, 0x82cb9b024dc7d44du};
  for (const std::uint64_t hash : expected) {
    REQUIRE(kv::siphash13(input, seed) == hash);
    input += static_cast<char>(input.size());
  }
}

TEST_CASE("store: any sequence of operations leaves what a map would hold", "[kv][random]") {
  // Goal: no operation loses, duplicates or damages a key while tables grow and shrink. Method:
  // random operations from a printed seed; the oracle is a std::map.
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  Store store;
  Database& db = store.database(0);
  struct Value {
    std::string text;
    std::int64_t expiry = kv::kNoExpiry;
  };
  std::map<std::string, Value> model;
  std::int64_t now = 1000;
  std::size_t range = 2000;
  for (int step = 0; step < 60000; ++step) {
    if (step % 10000 == 0) range = step % 20000 == 0 ? 4000 : 40;  // grows, then shrinks
    const std::string key = "key" + std::to_string(random() % range);
    const auto found = model.find(key);
    if (found != model.end() && found->second.expiry < now) model.erase(found);
    Entry* entry = db.find(key, now);
    REQUIRE((entry != nullptr) == (model.count(key) == 1));
    if (entry != nullptr) REQUIRE(entry->value() == model[key].text);
    switch (random() % 7) {
      case 0:
      case 1:
      case 2: {
        const std::string value(random() % 200, static_cast<char>('a' + random() % 26));
        const bool keep = random() % 2 == 0;
        db.set_found(entry, key, value, keep);
        Value& expected = model[key];
        expected.text = value;
        if (!keep) expected.expiry = kv::kNoExpiry;
        break;
      }
      case 3:
        if (entry != nullptr) {
          const std::int64_t when = now + 1 + static_cast<std::int64_t>(random() % 500);
          db.expire_at(entry, when);
          model[key].expiry = when;
        }
        break;
      case 4:
        if (entry != nullptr) {
          entry = db.resize(entry, entry->value_size + 1, true);
          entry->value_bytes()[entry->value_size - 1] = '!';
          model[key].text += '!';
        }
        break;
      case 5:
        now += static_cast<std::int64_t>(random() % 3);
        break;
      default:
        // Also deletes keys of the larger range, so that the table becomes sparse.
        for (std::size_t i = 0; i < 4; ++i) {
          const std::string other = "key" + std::to_string(random() % 4000);
          if (Entry* victim = db.find(other, now)) db.erase(victim);
          model.erase(other);
        }
    }
    if (step % 97 == 0) db.rehash_some(1);
    if (step % 500 == 0) store.expire_some(now, 50);
  }
  store.expire_some(now, model.size());
  std::size_t left = 0;
  for (const auto& [key, value] : model) {
    const Entry* entry = db.find(key, now);
    REQUIRE((entry != nullptr) == (value.expiry >= now));
    if (entry == nullptr) continue;
    ++left;
    REQUIRE(entry->value() == value.text);
  }
  REQUIRE(db.size() == left);
  db.clear();
  REQUIRE(store.memory() == 0);
}

TEST_CASE("store: a key is there until its time has passed", "[kv]") {
  Store store;
  Database& db = store.database(0);
  db.expire_at(db.set("a", "1", 100), 200);
  REQUIRE(db.find("a", 200) != nullptr);
  REQUIRE(db.find("a", 201) == nullptr);
  REQUIRE(db.size() == 0);
  REQUIRE(store.expired() == 1);
}

TEST_CASE("store: background expiry is bounded and takes the oldest first", "[kv]") {
  Store store;
  Database& db = store.database(3);
  for (int i = 0; i < 1000; ++i) {
    const std::string key = std::to_string(i);
    db.expire_at(db.set(key, "v", 0), 10 + (i * 7919) % 1000);
  }
  db.set("forever", "v", 0);
  REQUIRE(store.expire_some(10 + 500, 100) == 100);
  REQUIRE(db.size() == 901);
  REQUIRE(store.expire_some(10 + 500, 100000) == 400);
  REQUIRE(store.expire_some(10 + 500, 100000) == 0);
  REQUIRE(store.expire_some(2000, 100000) == 500);
  REQUIRE(db.size() == 1);
  REQUIRE(db.volatile_size() == 0);
}

TEST_CASE("store: replacing a value of like size allocates nothing", "[kv]") {
  Store store;
  Database& db = store.database(0);
  const Entry* before = db.set("key", std::string(100, 'a'), 0);
  const std::size_t memory = store.memory();
  REQUIRE(db.set("key", std::string(90, 'b'), 0) == before);
  REQUIRE(db.set("key", std::string(100, 'c'), 0) == before);
  REQUIRE(store.memory() == memory);
  db.set("key", std::string(100000, 'd'), 0);
  REQUIRE(store.memory() > memory + 99000);
  db.set("key", "small", 0);
  REQUIRE(store.memory() < memory + 100);
}

TEST_CASE("store: a lazy flush frees in bounded steps", "[kv]") {
  Store store;
  for (int i = 0; i < 5000; ++i) store.database(0).set(std::to_string(i), "v", 0);
  store.flush(0, true);
  REQUIRE(store.database(0).size() == 0);
  REQUIRE(store.memory() > 5000 * sizeof(Entry));
  int steps = 0;
  while (store.maintain(0, 1000)) ++steps;
  REQUIRE(steps >= 5);
  REQUIRE(store.memory() == 0);
}
