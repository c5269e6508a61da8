// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// For tests of the C interface: listeners that keep what they accept, and whether bytes arrive.

#include <utility>
#include <vector>

#include "c/aeconn.h"
#include "tests/support/c_kit.h"
#include "tests/support/catch.h"

namespace testing::c {

/// Checks that both are ends of one connection, which is established and carries bytes both ways.
inline void require_echo(aeconn_loop* loop, aeconn_conn* one, aeconn_conn* other) {
  until(loop, [&] { return aeconn_get_state(one) == AECONN_CONNECTED; });
  const std::pair<aeconn_conn*, aeconn_conn*> ways[] = {{one, other}, {other, one}};
  for (const auto& [from, to] : ways) {
    Reader reader(to);
    REQUIRE(aeconn_write(from, "hello", 5) == 5);
    aeconn_flush(from);
    until(loop, [&] { return reader.bytes == "hello"; });
    REQUIRE(aeconn_on_readable(to, nullptr, nullptr) == 0);
  }
}

/// Connections that a listener has accepted.
struct Guests {
  static void take(void* self, aeconn_conn* conn) {
    static_cast<Guests*>(self)->all.emplace_back(conn);
  }
  std::vector<Conn> all;
};

}  // namespace testing::c
