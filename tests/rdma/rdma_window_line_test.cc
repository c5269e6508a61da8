// SPDX-License-Identifier: BSD-3-Clause
// The order of receive windows and their unread bytes. What the queue does with them is in
// rdma_straight_test.cc and rdma_stream_receive_test.cc.
#if AECONN_RDMA

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "conn/rdma/protocol/window_line.h"
#include "tests/support/catch.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma { namespace {

// Windows whose memory is `text` and is filled to its end.
struct Windows {
  std::array<std::string, WindowLine::kSlots> text;
  std::array<WindowRecord, WindowLine::kSlots> records;

  WindowRecord& filled(std::size_t i, std::string_view with, std::uint32_t read = 0) {
    text[i] = with;
    records[i].buffer.data = reinterpret_cast<std::byte*>(text[i].data());
    records[i].end = records[i].filled = static_cast<std::uint32_t>(with.size());
    records[i].read = read;
    return records[i];
  }
};

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST_CASE("rdma window line: windows keep their order when one leaves", "[rdma][stream]") {
  std::array<WindowRecord, WindowLine::kSlots> records;
  for (std::size_t gone = 0; gone < WindowLine::kSlots; ++gone) {
    WindowLine line;
    for (WindowRecord& record : records) line.append(record);
    REQUIRE(line.count() == WindowLine::kSlots);
    line.remove(gone);
    REQUIRE(line.count() == WindowLine::kSlots - 1);
    for (std::size_t i = 0; i < line.count(); ++i)
      CHECK(&line.at(i) == &records[i < gone ? i : i + 1]);
  }
}

TEST_CASE("rdma window line: a record takes the place of another", "[rdma][stream]") {
  std::array<WindowRecord, 4> records;
  WindowLine line;
  line.append(records[0]);
  line.append(records[1]);
  line.substitute(records[1], records[2]);
  line.substitute(records[3], records[2]);  // not in the line
  CHECK(line.count() == 2);
  CHECK(&line.at(0) == &records[0]);
  CHECK(&line.at(1) == &records[2]);
}

TEST_CASE("rdma window line: unread bytes come from the first window on", "[rdma][stream]") {
  Windows windows;
  WindowLine line;
  CHECK_FALSE(line.has_unread());
  CHECK(line.unread().empty());
  CHECK(line.unread_bytes() == 0);
  line.append(windows.filled(0, "abcde", 2));
  line.append(windows.filled(1, "fgh"));
  line.append(windows.filled(2, ""));
  line.append(windows.filled(3, "later"));  // behind an empty one, which is not what a peer fills
  CHECK(line.has_unread());
  CHECK(text_of(line.unread()) == "cde");
  CHECK(line.unread_bytes() == 11);

  std::array<std::span<const std::byte>, 4> pieces;
  CHECK(line.peek(std::span(pieces).first(1)) == 1);
  CHECK(line.peek(pieces) == 2);
  CHECK(text_of(pieces[0]) == "cde");
  CHECK(text_of(pieces[1]) == "fgh");

  std::string copy(11, '.');
  line.copy_unread(reinterpret_cast<std::byte*>(copy.data()));
  CHECK(copy == "cdefghlater");

  line.at(0).read = 5;
  CHECK_FALSE(line.has_unread());
}

TEST_CASE("rdma window line: bytes left over are those of memory that is not offered again",
          "[rdma][stream]") {
  Windows windows;
  WindowLine line;
  CHECK(line.left_over() == 0);
  line.append(windows.filled(0, "abcde", 2));
  CHECK(line.left_over() == 0);
  line.at(0).left_over = true;
  CHECK(line.left_over() == 3);
}

}  // namespace
}}}  // namespace conn::rdma

#endif
