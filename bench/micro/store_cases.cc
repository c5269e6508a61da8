// SPDX-License-Identifier: BSD-3-Clause
// The hash table of kv-server with 10,000 keys; each call uses the next key.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/micro/cases.h"
#include "examples/kv_server/store.h"

namespace micro {
namespace {

constexpr std::size_t kKeys = 10'000;
constexpr kv::HashSeed kSeed{1, 2};

struct Data {
  Data() : store(false, kSeed) {
    for (std::size_t i = 0; i < kKeys; ++i) {
      keys.push_back("key:" + std::to_string(100'000'000'000 + i));
      set(keys.back());
    }
  }
  std::string_view next() {
    at = at + 1 < kKeys ? at + 1 : 0;
    return keys[at];
  }
  kv::Entry* find(std::string_view name) {
    const kv::Key key = store.key(name);
    return store.of(key).find(key);
  }
  kv::Entry* set(std::string_view name) {
    const kv::Key key = store.key(name);
    kv::Shard& shard = store.of(key);
    return shard.set(shard.find(key), key, value);
  }
  kv::Store store;
  std::vector<std::string> keys;
  std::string value = std::string(64, 'v');
  std::size_t at = 0;
};

template <class Call>
auto with_data(Call call) {
  return [call] { return [data = std::make_unique<Data>(), call] { call(*data); }; };
}

}  // namespace

void add_store_cases(Cases& cases) {
  cases.add("siphash/16 B", [] {
    return [key = std::string_view("key:000000000001")] {
      keep(key);
      keep(kv::siphash13(key, kSeed));
    };
  });
  // One call per key instead of 1000: chains differ in length, and the figure must cover all of
  // them.
  cases.add("store/find one of 10,000 keys",
            with_data([](Data& data) { keep(*data.find(data.next())); }), kKeys);
  cases.add("store/find a key that is not there",
            with_data([](Data& data) { keep(data.find("none")); }));
  cases.add("store/set a value of the same size",
            with_data([](Data& data) { keep(*data.set(data.next())); }), kKeys);
}

}  // namespace micro
