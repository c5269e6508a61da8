// SPDX-License-Identifier: BSD-3-Clause
// kv-server's table of values whose memory is registered with the device.

#include <string>
#include <vector>

#include "ae/libev_loop.h"
#include "conn/transports/transports.h"
#include "examples/kv_server/references.h"
#include "tests/support/catch.h"

using kv::Entry;
using kv::RegisteredValues;

namespace {

struct Table {
  conn::Registry registry = conn::all_transports();
  ae::LibevLoop loop;
  RegisteredValues values;

  RegisteredValues::Slot* sent(Entry* entry, const char* type = "rdma") {
    return values.find(entry, registry.require(type), loop);
  }
};

Entry* made(std::size_t size) {
  Entry* entry = kv::make_entry("key", size);
  entry->value_size = static_cast<std::uint32_t>(size);
  return entry;
}

}  // namespace

TEST_CASE("kv registered values: what is sent often is registered, and goes after its key",
          "[kv][in-place]") {
  Table table;
  if (!table.registry.require("rdma").capabilities().in_place) return;
  Entry* const entry = made(65536);
  for (std::uint32_t i = 1; i < RegisteredValues::kOften; ++i)
    REQUIRE(table.sent(entry) == nullptr);
  REQUIRE(!entry->shared());
  RegisteredValues::Slot* const slot = table.sent(entry);
  REQUIRE(slot != nullptr);
  REQUIRE(table.sent(entry) == slot);
  CHECK(entry->shared());
  CHECK(table.values.bytes() == 65536);
  REQUIRE(slot->memory->bytes().data() == reinterpret_cast<std::byte*>(entry->value_bytes()));
  table.values.sweep();  // its key still exists
  CHECK(table.values.bytes() == 65536);
  ++slot->on_way;
  drop_entry(entry);
  table.values.sweep();  // it is being sent
  CHECK(table.values.bytes() == 65536);
  --slot->on_way;
  table.values.sweep();
  CHECK(table.values.bytes() == 0);
  CHECK(slot->memory == nullptr);
}

TEST_CASE("kv registered values: no more than so many bytes, and nothing for sockets",
          "[kv][in-place]") {
  Table table;
  if (!table.registry.require("rdma").capabilities().in_place) return;
  Entry* const small = made(20000);
  Entry* const large = made(RegisteredValues::kMost + 1);
  for (std::uint32_t i = 0; i < 3 * RegisteredValues::kOften; ++i) {
    REQUIRE(table.sent(large) == nullptr);
    REQUIRE(table.sent(small, "tcp") == nullptr);
  }
  CHECK(table.values.bytes() == 0);
  drop_entry(small);
  drop_entry(large);
}

TEST_CASE("kv registered values: what is sent more often takes the place", "[kv][in-place]") {
  Table table;
  if (!table.registry.require("rdma").capabilities().in_place) return;
  // More values than the table has slots.
  std::vector<Entry*> entries;
  for (std::size_t i = 0; i < 2 * RegisteredValues::kSlots; ++i) entries.push_back(made(20000));
  for (std::uint32_t i = 0; i < RegisteredValues::kOften; ++i)
    for (Entry* entry : entries) (void)table.sent(entry);
  CHECK(table.values.bytes() <= RegisteredValues::kSlots * 20000);
  for (Entry* entry : entries) {
    RegisteredValues::Slot* slot = nullptr;
    for (std::uint32_t i = 0; i < 4 * RegisteredValues::kOften && slot == nullptr; ++i)
      slot = table.sent(entry);
    REQUIRE(slot != nullptr);
    CHECK(slot->entry == entry);
  }
  for (Entry* entry : entries) drop_entry(entry);
  table.values.sweep();
  CHECK(table.values.bytes() == 0);
}
