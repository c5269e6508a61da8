// SPDX-License-Identifier: BSD-3-Clause
// The list of a loop's connections: who is in it, and that each can leave by itself.

#include <string>

#include "conn/core/set_entry.h"
#include "tests/support/catch.h"

namespace {

struct Entry final : conn::SetEntry {
  explicit Entry(char its) : name(its) {}
  char name;
};

std::string names(const conn::SetEntry* head) {
  std::string all;
  for (; head != nullptr; head = head->next()) all += static_cast<const Entry*>(head)->name;
  return all;
}

}  // namespace

TEST_CASE("set entry: the newest is first, and each leaves from its own place", "[conn]") {
  conn::SetEntry* head = nullptr;
  Entry a('a'), b('b'), c('c'), d('d');
  for (Entry* each : {&a, &b, &c, &d}) {
    REQUIRE_FALSE(each->listed());
    each->link(head);
    REQUIRE(each->listed());
  }
  REQUIRE(names(head) == "dcba");
  b.unlink();  // from the middle
  REQUIRE(names(head) == "dca");
  REQUIRE_FALSE(b.listed());
  REQUIRE(b.next() == nullptr);
  b.unlink();  // no effect
  a.unlink();  // the last
  REQUIRE(names(head) == "dc");
  d.unlink();  // the first
  REQUIRE(names(head) == "c");
  b.link(head);
  REQUIRE(names(head) == "bc");
  {
    Entry e('e');
    e.link(head);
    REQUIRE(names(head) == "ebc");
  }  // the destructor leaves the list
  REQUIRE(names(head) == "bc");
  conn::SetEntry* other = nullptr;
  c.unlink();
  c.link(other);
  REQUIRE(names(head) == "b");
  REQUIRE(names(other) == "c");
}
