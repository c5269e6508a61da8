// SPDX-License-Identifier: BSD-3-Clause
// The request parser: input in pieces, limits, hostile input (faults K1-K10).

#include <random>
#include <string>
#include <vector>

#include "examples/kv_server/resp_parser.h"
#include "tests/support/catch.h"

using kv::RequestParser;
using Result = kv::RequestParser::Result;
using Request = std::vector<std::string>;

namespace {

/// The requests and the error of `input`, arriving in pieces of the sizes that `next` returns. An
/// incomplete argument is taken out of the buffer where possible.
template <class Next>
std::pair<std::vector<Request>, std::string> parse(const std::string& input, Next next,
                                                   bool authenticated = true,
                                                   const kv::ParserLimits& limits = {}) {
  RequestParser parser;
  std::vector<Request> requests;
  std::string unread, outside;
  std::size_t missing = 0;  // bytes missing in `outside`
  for (std::size_t fed = 0; fed < input.size();) {
    const std::size_t size = std::min<std::size_t>(next(), input.size() - fed);
    const std::size_t there = std::min(missing, size);
    outside += input.substr(fed, there);
    missing -= there;
    if (there != 0) parser.moved_to(outside.data());
    // The buffer moves, as a growing one does.
    unread = std::string(unread + input.substr(fed + there, size - there));
    fed += size;
    for (bool more = missing == 0; more && !unread.empty();) {
      switch (parser.next(unread, limits, authenticated)) {
        case Result::kNeedMore:
          more = false;
          if (parser.large() > unread.size() - parser.size()) {
            outside = unread.substr(parser.size());
            missing = parser.large() - outside.size();
            unread.resize(parser.size());
            parser.take_out();
          }
          break;
        case Result::kError:
          return {requests, parser.error()};
        case Result::kRequest:
          requests.emplace_back(parser.arguments().begin(), parser.arguments().end());
          unread.erase(0, parser.size());
      }
    }
  }
  return {requests, ""};
}

std::pair<std::vector<Request>, std::string> parse_whole(const std::string& input,
                                                         bool authenticated = true,
                                                         const kv::ParserLimits& limits = {}) {
  return parse(
      input, [&] { return input.size(); }, authenticated, limits);
}

std::string error_of(const std::string& input) { return parse_whole(input).second; }

}  // namespace

TEST_CASE("request parser: multibulk and inline requests follow each other", "[kv]") {
  const auto [requests, error] = parse_whole(
      "*2\r\n$3\r\nGET\r\n$1\r\na\r\nPING\r\n\r\n*0\r\n*-1\r\n"
      "set k \"a\\x00b\\n\" 'it\\'s'\n");
  REQUIRE(error.empty());
  REQUIRE(requests ==
          std::vector<Request>{
              {"GET", "a"}, {"PING"}, {}, {}, {}, {"set", "k", std::string("a\0b\n", 4), "it's"}});
}

TEST_CASE("request parser: an argument may hold any bytes", "[kv]") {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  bytes += "\r\n$3\r\n*1\r\n";
  const auto [requests, error] =
      parse_whole("*1\r\n$" + std::to_string(bytes.size()) + "\r\n" + bytes + "\r\n");
  REQUIRE(requests == std::vector<Request>{{bytes}});
}

TEST_CASE("request parser: any split of any input gives the same requests", "[kv][random]") {
  // Goal: cutting the input changes nothing, errors included. Method: inputs made of valid and
  // invalid fragments, cut into single bytes and at random, compared with the parse in one piece.
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  static const std::string kFragments[] = {"*1\r\n$4\r\nPING\r\n",
                                           "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nv\r\nxx\r\n",
                                           "PING\r\n",
                                           "\r\n",
                                           "*2\r\n$0\r\n\r\n$2\r\n\r\n\r\n",
                                           "ECHO \"a b\" 'c'\r\n",
                                           "*0\r\n",
                                           "*-5\r\n",
                                           "ECHO \"x\n",
                                           "*1\r\n$-1\r\n",
                                           "*1\r\n:1\r\n",
                                           "*01\r\n",
                                           "*1\r\n$4\r\nPINGxx",
                                           "*1\r\n$4\nPING\r\n",
                                           "*1\r$",
                                           "*1048577\r\n",
                                           "*2\r\n$3\r\nGET\r\n$600000000\r\n"};
  for (int round = 0; round < 500; ++round) {
    std::string input;
    for (auto count = random() % 6; count > 0; --count) {
      // Mostly valid fragments: an invalid one ends the stream.
      input += kFragments[random() % (random() % 4 == 0 ? std::size(kFragments) : 8)];
    }
    CAPTURE(input);
    const auto whole = parse_whole(input);
    REQUIRE(parse(input, [] { return 1u; }) == whole);
    REQUIRE(parse(input, [&] { return 1 + random() % 9; }) == whole);
  }
}

TEST_CASE("request parser: a whole request is parsed as its single bytes are", "[kv][random]") {
  // Goal: the straight path for whole requests gives what the steps give. Method: requests of
  // random sizes, with changed bytes, in one piece and as single bytes, which never take that path.
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto number = [&](std::size_t value) {
    return random() % 50 == 0 ? "0" + std::to_string(value) : std::to_string(value);
  };
  for (int round = 0; round < 2000; ++round) {
    std::string input;
    for (auto count = 1 + random() % 3; count > 0; --count) {
      const std::size_t arguments = random() % 14;
      input += "*" + number(arguments) + "\r\n";
      for (std::size_t i = 0; i < arguments; ++i) {
        const std::string bytes(random() % (random() % 10 == 0 ? 1200 : 12),
                                "x0\r\n"[random() % 4]);
        input += "$" + number(bytes.size()) + "\r\n" + bytes + "\r\n";
      }
    }
    for (auto changes = random() % 3; changes > 0; --changes)
      input[random() % input.size()] = "*$\r\n0159-x"[random() % 10];
    CAPTURE(input);
    kv::ParserLimits limits;
    if (random() % 4 == 0) limits = {1000, 10, 64};
    const bool authenticated = random() % 4 != 0;
    REQUIRE(parse(
                input, [] { return 1u; }, authenticated, limits) ==
            parse_whole(input, authenticated, limits));
  }
}

TEST_CASE("request parser: bad lengths end the stream with Redis's words", "[kv][hostile]") {
  const std::string bulk = "Protocol error: invalid bulk length";
  const std::string multibulk = "Protocol error: invalid multibulk length";
  for (const char* length : {"-1", "-2", "536870913", "+5", "007", "x", "", "1x", " 1", "1.0",
                             "9223372036854775808", "99999999999999999999999"}) {
    CAPTURE(length);
    REQUIRE(error_of(std::string("*1\r\n$") + length + "\r\n") == bulk);
  }
  for (const char* length :
       {"1048577", "+5", "007", "x", "", "9223372036854775808", "99999999999999999999999"}) {
    CAPTURE(length);
    REQUIRE(error_of(std::string("*") + length + "\r\n") == multibulk);
  }
  REQUIRE(error_of("*1\r\nPING\r\n") == "Protocol error: expected '$', got 'P'");
  REQUIRE(error_of("*2\r\n$1\r\na\r\n:1\r\n") == "Protocol error: expected '$', got ':'");
}

TEST_CASE("request parser: line ends are CR LF in multibulk requests", "[kv][hostile]") {
  for (const char* input : {"*1\r\n$4\r\nPINGxx", "*1\r\n$4\r\nPING\n\n", "*1\r\n$4\r\nPING\r\r",
                            "*1\rx", "*1\r\r\n", "*1\r\n$4\rx", "*1\r\n$4\r\r\nPING\r\n"}) {
    CAPTURE(input);
    REQUIRE(error_of(input).starts_with("Protocol error: expected CR LF"));
  }
  // A single LF belongs to the line, so the number is invalid once the line ends.
  REQUIRE(error_of("*1\n$4\r\n") == "Protocol error: invalid multibulk length");
  // Inline requests end with LF, with or without CR.
  REQUIRE(parse_whole("PING\nPING\r\n").first == std::vector<Request>{{"PING"}, {"PING"}});
}

TEST_CASE("request parser: endless lines are refused at 64 KiB", "[kv][hostile]") {
  REQUIRE(error_of(std::string(65537, 'a')) == "Protocol error: too big inline request");
  REQUIRE(error_of(std::string(65537, 'a') + "\r\n") == "Protocol error: too big inline request");
  REQUIRE(parse_whole(std::string(65535, 'a') + "\r\n").first.size() == 1);
  REQUIRE(error_of("*" + std::string(65537, '1')) == "Protocol error: too big mbulk count string");
  REQUIRE(error_of("*1\r\n$" + std::string(65537, '1')) ==
          "Protocol error: too big bulk count string");
  REQUIRE(error_of("set \"k\n") == "Protocol error: unbalanced quotes in request");
  REQUIRE(error_of("set 'k'x\n") == "Protocol error: unbalanced quotes in request");
}

TEST_CASE("request parser: a client that has not logged in may send little", "[kv][hostile]") {
  REQUIRE(parse_whole("*11\r\n", false).second ==
          "Protocol error: unauthenticated multibulk length");
  REQUIRE(parse_whole("*1\r\n$16385\r\n", false).second ==
          "Protocol error: unauthenticated bulk length");
  REQUIRE(parse_whole("*2\r\n$4\r\nAUTH\r\n$1\r\np\r\n", false).first.size() == 1);
}

TEST_CASE("request parser: a large argument's key is what comes before it", "[kv]") {
  const auto key = [](const std::string& input) {
    RequestParser parser;
    REQUIRE(parser.next(input, kv::ParserLimits{}) == Result::kNeedMore);
    return parser.large() == 0 ? "none" : std::string(parser.key_of_large(input));
  };
  const std::string set = "$3\r\nSET\r\n$3\r\nkey\r\n", part = "$100\r\nx";
  REQUIRE(key("*3\r\n" + set + part) == "key");
  REQUIRE(key("*5\r\n" + set + part) == "key");
  REQUIRE(key("*5\r\n" + set + "$1\r\nv\r\n$2\r\nk2\r\n" + part) == "k2");
  REQUIRE(key("*1\r\n" + part) == "none");  // the name of a command
  REQUIRE(key("*3\r\n" + set) == "none");
  REQUIRE(key("*3\r\n" + set + "$100") == "none");
}

TEST_CASE("request parser: an announced argument is known to be missing", "[kv]") {
  RequestParser parser;
  REQUIRE(parser.next("*1\r\n$1000\r\nabc", kv::ParserLimits{}) == Result::kNeedMore);
  REQUIRE(parser.missing() == 1002 - 3);
}
