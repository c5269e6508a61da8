// SPDX-License-Identifier: BSD-3-Clause
// The store: compared with a map, while tables grow, and its memory accounting.

#include <map>
#include <random>
#include <string>

#include "examples/kv_server/store.h"
#include "tests/support/catch.h"

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

TEST_CASE("store: texts of any length are compared whole", "[kv]") {
  const std::string text = "0123456789abcdefghijklmnopqrstuv";
  for (std::size_t size = 0; size <= text.size(); ++size) {
    CAPTURE(size);
    REQUIRE(kv::same_bytes(text.data(), text.substr(0, size).data(), size));
    for (std::size_t at = 0; at < size; ++at) {
      std::string other = text.substr(0, size);
      ++other[at];
      REQUIRE_FALSE(kv::same_bytes(text.data(), other.data(), size));
    }
  }
}

TEST_CASE("store: any sequence of operations leaves what a map would hold", "[kv][random]") {
  // Goal: no operation loses, duplicates or damages a key while tables grow. Method: random
  // operations from a printed seed; the oracle is a std::map.
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  Store store;
  std::map<std::string, std::string> model;
  for (int step = 0; step < 100000; ++step) {
    const std::string name = "key" + std::to_string(random() % 10000);
    const kv::Key key = store.key(name);
    kv::Shard& shard = store.of(key);
    Entry* entry = shard.find(key);
    REQUIRE((entry != nullptr) == (model.count(name) == 1));
    if (entry != nullptr) REQUIRE(entry->value() == model[name]);
    switch (random() % 5) {
      case 0:
      case 1:
      case 2: {
        const std::string value(random() % 200, static_cast<char>('a' + random() % 26));
        shard.set(entry, key, value);
        model[name] = value;
        break;
      }
      case 3:
        if (entry != nullptr) {
          entry = shard.lengthen(entry, entry->value_size + 1);
          entry->value_bytes()[entry->value_size - 1] = '!';
          model[name] += '!';
        }
        break;
      default:
        if (entry != nullptr) shard.erase(entry);
        model.erase(name);
    }
  }
  for (const auto& [name, value] : model) {
    const kv::Key key = store.key(name);
    const Entry* entry = store.of(key).find(key);
    REQUIRE(entry != nullptr);
    REQUIRE(entry->value() == value);
  }
  REQUIRE(store.size() == model.size());
  for (kv::Shard& shard : store.shards()) shard.clear();
  REQUIRE(store.size() == 0);
  REQUIRE(store.memory() == 0);
}

TEST_CASE("store: a table that grows moves a small part of the keys", "[kv]") {
  Store store;
  for (int i = 0; i < 100000; ++i) {
    const std::string name = std::to_string(i);
    const kv::Key key = store.key(name);
    store.of(key).set(nullptr, key, "v");
  }
  for (const kv::Shard& shard : store.shards()) {
    REQUIRE(shard.size() > 200);
    REQUIRE(shard.size() < 800);
  }
}

TEST_CASE("store: replacing a value of like size allocates nothing", "[kv]") {
  Store store;
  const kv::Key key = store.key("key");
  kv::Shard& shard = store.of(key);
  Entry* entry = shard.set(nullptr, key, std::string(100, 'a'));
  const std::size_t memory = store.memory();
  REQUIRE(shard.set(entry, key, std::string(90, 'b')) == entry);
  REQUIRE(shard.set(entry, key, std::string(100, 'c')) == entry);
  REQUIRE(store.memory() == memory);
  entry = shard.set(entry, key, std::string(100000, 'd'));
  REQUIRE(store.memory() > memory + 99000);
  entry = shard.set(entry, key, "small");
  REQUIRE(store.memory() < memory + 100);
}
