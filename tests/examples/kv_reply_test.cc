// SPDX-License-Identifier: BSD-3-Clause
// The client: parsing and printing of replies.

#include <string>

#include "examples/kv_server/resp_reply.h"
#include "tests/support/catch.h"

using kv::Reply;
using kv::ReplyParser;
using Result = kv::ReplyParser::Result;

namespace {

/// Prints all replies in `input`, which arrives in pieces of `piece` bytes.
std::string show(const std::string& input, std::size_t piece) {
  ReplyParser parser;
  std::string unread, out;
  for (std::size_t at = 0; at < input.size(); at += piece) {
    unread += input.substr(at, piece);
    for (;;) {
      std::size_t used = 0;
      const Result result = parser.next(unread, used);
      unread.erase(0, used);
      if (result == Result::kError) return out + "error: " + parser.error();
      if (result == Result::kNeedMore) break;
      out += kv::format_reply(parser.reply()) + '\n';
    }
  }
  return out;
}

std::string show(const std::string& input) {
  const std::string whole = show(input, input.size());
  for (std::size_t piece = 1; piece < input.size(); ++piece) REQUIRE(show(input, piece) == whole);
  return whole;
}

}  // namespace

TEST_CASE("replies look as those of redis-cli in a pipe", "[kv]") {
  REQUIRE(show("+OK\r\n") == "OK\n");
  REQUIRE(show("-ERR no\x1b\r\n") == "ERR no?\n");
  REQUIRE(show(":-42\r\n") == "-42\n");
  REQUIRE(show("$5\r\na\r\n\"\x01\r\n") == "a\r\n\"\x01\n");
  REQUIRE(show("$-1\r\n*-1\r\n_\r\n") == "\n\n\n");
  REQUIRE(show("*0\r\n%0\r\n~0\r\n") == "\n\n\n");
  REQUIRE(show("*4\r\n$1\r\na\r\n:1\r\n$-1\r\n*2\r\n+x\r\n+y\r\n") == "a\n1\n\nx\ny\n");
  REQUIRE(show("%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n#t\r\n") == "a\n1\nb\n1\n");
  REQUIRE(show("=7\r\ntxt:abc\r\n(123456789012345678901\r\n") == "abc\n123456789012345678901\n");
  REQUIRE(show("!6\r\nERR no\r\n,1.5\r\n") == "ERR no\n1.5\n");
}

TEST_CASE("a server that does not speak RESP is refused", "[kv][hostile]") {
  REQUIRE(show("HTTP/1.1 400\r\n").starts_with("error: "));
  REQUIRE(show(":1x\r\n").starts_with("error: "));
  REQUIRE(show("$3\r\nabcde\r\n").starts_with("error: "));
  REQUIRE(show("$99999999999999999999\r\n").starts_with("error: "));
  REQUIRE(show("*-2\r\n").starts_with("error: "));
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "*1\r\n";
  REQUIRE(show(deep, deep.size()).starts_with("error: "));
  // A count allocates nothing.
  REQUIRE(show("*1000000000\r\n:1\r\n").empty());
}
