// SPDX-License-Identifier: BSD-3-Clause
// The reading side of a connection: its budget, and what it shows in place.
#if AECONN_RDMA

#include "conn/rdma/reader.h"

#include <cerrno>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/stream_bench.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma { namespace {

using test::Bench;

std::string text_of(const View& view) {
  std::string text;
  for (std::size_t i = 0; i < static_cast<std::size_t>(view.count); ++i)
    text.append(static_cast<const char*>(view.pieces[i].iov_base), view.pieces[i].iov_len);
  return text;
}

TEST_CASE("rdma reader: an iteration has a budget, and the next one has it again",
          "[rdma][reader]") {
  Bench bench(Role::kServer);
  bench.offer();
  bench.data("abcdef");
  Reader reader;
  CHECK(reader.may_read(1));
  reader.renew(1, 4);
  CHECK(reader.left() == 4);
  const Reader::Taken taken = reader.take(bench.stream.inbound(), nullptr, 3);
  CHECK(taken.bytes == 3);
  CHECK_FALSE(taken.turned);
  reader.renew(1, 4);  // the same iteration
  CHECK(reader.left() == 1);
  CHECK(reader.take(bench.stream.inbound(), nullptr, 1).bytes == 1);
  CHECK_FALSE(reader.may_read(1));
  CHECK(reader.may_read(2));
  reader.renew(2, 4);
  CHECK(reader.left() == 4);
  CHECK(bench.stream.inbound().unread_bytes() == 2);
}

TEST_CASE("rdma reader: the end of a window is reported, for another to be offered",
          "[rdma][reader]") {
  Bench bench(Role::kServer, 4);
  bench.offer();
  bench.data("abcd");
  Reader reader;
  reader.renew(1, 100);
  CHECK_FALSE(reader.take(bench.stream.inbound(), nullptr, 3).turned);
  CHECK(reader.take(bench.stream.inbound(), nullptr, 3).turned);
}

TEST_CASE("rdma reader: a view that waits for more makes the handler wait, too", "[rdma][reader]") {
  Bench bench(Role::kServer);
  bench.offer();
  Reader reader;
  reader.renew(1, 100);
  CHECK_FALSE(reader.is_due(bench.stream));
  bench.data("abc");
  CHECK(reader.is_due(bench.stream));
  View view;
  REQUIRE(reader.show(bench.stream, false, 5, view) == 1);
  CHECK(text_of(view) == "abc");
  CHECK_FALSE(view.last);
  CHECK(reader.viewed());
  CHECK(reader.shown() == 3);
  CHECK_FALSE(reader.is_due(bench.stream));
  bench.data("de");
  CHECK(reader.is_due(bench.stream));
  REQUIRE(reader.take(bench.stream.inbound(), nullptr, 2).bytes == 2);
  CHECK(reader.shown() == 1);
  CHECK(reader.end_view());  // any byte is of interest again
  CHECK_FALSE(reader.viewed());
  CHECK_FALSE(reader.has_view());
  CHECK_FALSE(reader.end_view());
}

TEST_CASE("rdma reader: bytes that are not in one piece are not shown as such", "[rdma][reader]") {
  Bench bench(Role::kServer);
  bench.offer();
  bench.data("abcdefgh");
  bench.offer();
  bench.data("ij");
  CHECK(bench.read(6) == "abcdef");
  Reader reader;
  reader.renew(1, 100);
  View view;
  errno = 0;
  CHECK(reader.show(bench.stream, false, 3, view) == -1);
  CHECK(errno == EMSGSIZE);
  CHECK_FALSE(reader.viewed());
  View both;
  REQUIRE(reader.show(bench.stream, true, 2, both) == 1);
  CHECK(both.count == 2);
  CHECK(text_of(both) == "ghij");
  CHECK(both.last);
}

TEST_CASE("rdma reader: the end of the peer's stream is told once, and read later",
          "[rdma][reader]") {
  Reader reader;
  CHECK(reader.is_first_to_report_end());
  CHECK_FALSE(reader.is_first_to_report_end());
  CHECK_FALSE(reader.ended());
  reader.set_ended();
  CHECK(reader.ended());
}

}  // namespace
}}}  // namespace conn::rdma

#endif
