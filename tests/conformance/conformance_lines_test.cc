// SPDX-License-Identifier: BSD-3-Clause
// co::Stream::read_line() at the end of its buffer, over each transport.

#include <array>
#include <string>
#include <string_view>

#include "conn/co.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

namespace co = conn::co;
using testing::Pair;

namespace {

/// Reads lines into a buffer of five bytes until the end of the stream.
co::Task<> read_lines(co::Stream& from, std::string& seen) {
  std::array<char, 5> buffer;
  for (;;) {
    const co::Result got = co_await from.read_line(buffer);
    seen.append(buffer.data(), got.size);
    seen += got ? "|" : got.error == std::errc::message_size ? "+" : got.ended() ? "." : "?";
    if (!got && got.error != std::errc::message_size) co_return;
  }
}

}  // namespace

TEST_CASE("read_line: a line that fills the buffer may end with a carriage return",
          "[conformance][co]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    ae::EventLoop& loop = *pair.server->loop();
    co::Stream server(std::move(pair.server));
    std::string seen;
    co::Scope scope;
    scope.spawn(read_lines(server, seen));
    const auto send = [&](std::string_view bytes) {
      REQUIRE(pair.client->write(bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
      pair.client->flush();
    };
    send("hello\nhello\r\nworld!\r\nabcd\r\r\n\r\n");
    RUN_UNTIL(loop, seen == "hello|hello|world+!|abcd\r||");
    // The carriage return comes alone: the loop sleeps until the next byte says what it is.
    seen.clear();
    send("hello\r");
    testing::turns(loop, 20);
    REQUIRE(seen.empty());
    testing::IterationCounter counter(loop);
    REQUIRE(counter.during(std::chrono::milliseconds(100)) < 50);
    send("\n");
    RUN_UNTIL(loop, seen == "hello|");
    send("hello\r");
    testing::turns(loop, 20);
    send("x\n");
    RUN_UNTIL(loop, seen == "hello|hello+\rx|");
    seen.clear();
    send("hello\r");
    pair.client.reset();
    RUN_UNTIL(loop, seen == "hello+\r.");
  }
}
