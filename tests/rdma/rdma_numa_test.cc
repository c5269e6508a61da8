// SPDX-License-Identifier: BSD-3-Clause
// The processors near a device: parsing of sysfs's lists.
#if AECONN_RDMA

#include "conn/rdma/device/numa.h"

#include <vector>

#include "tests/support/catch.h"

using conn::rdma::parse_processors;

TEST_CASE("near: a list of processors, and what is none", "[rdma]") {
  CHECK(parse_processors("0-3,8,10-11") == std::vector<int>{0, 1, 2, 3, 8, 10, 11});
  CHECK(parse_processors("5") == std::vector<int>{5});
  for (const char* nonsense : {"", "x", "1-", "-1", "3-2", "1,x", "1-2-3", "0-99999999999", "1 "})
    CHECK(parse_processors(nonsense).empty());
  CHECK(conn::rdma::processors_near("").empty());
  CHECK(conn::rdma::processors_near("no-such-device").empty());
}

#endif
