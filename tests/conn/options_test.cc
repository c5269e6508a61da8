// SPDX-License-Identifier: BSD-3-Clause
// Options: the text after '?' in an endpoint's URL, and the argument of configure().

#include "conn/options.h"

#include "conn/error.h"
#include "tests/support/catch.h"

using conn::Options;
using namespace std::chrono_literals;
using testing::Contains;

TEST_CASE("options: text of keys and values is parsed and printed alike", "[conn][options]") {
  const Options options = Options::parse("window=256k&keepalive=3s&empty=");
  REQUIRE(options.text("window", "") == "256k");
  REQUIRE(options.text("empty", "x").empty());
  REQUIRE(options.text("absent", "fallback") == "fallback");
  REQUIRE(options.to_string() == "empty=&keepalive=3s&window=256k");
  REQUIRE(Options::parse(options.to_string()).values() == options.values());
  REQUIRE(Options::parse("").empty());
}

TEST_CASE("options: a key alone means yes, and '=' may stand in a value", "[conn][options]") {
  const Options options = Options::parse("reuseport&filter=a=b");
  REQUIRE(options.flag("reuseport", false));
  REQUIRE(options.text("filter", "") == "a=b");
}

TEST_CASE("options: bytes may be written as %XX, and a plus is a plus", "[conn][options]") {
  REQUIRE(Options::parse("name=a%41+b").text("name", "") == "aA+b");
  REQUIRE(Options::parse("a%3Db=%26%3d").text("a=b", "") == "&=");
  REQUIRE_THROWS_WITH(Options::parse("name=50%"),
                      "option name=50%: '%' must be followed by two hexadecimal digits; a percent "
                      "sign itself is %25");
}

TEST_CASE("options: empty and repeated keys are refused", "[conn][options]") {
  for (const char* text : {"=1", "&", "a=1&", "a=1&&b=2", "&a=1"}) {
    CAPTURE(text);
    REQUIRE_THROWS_AS(Options::parse(text), conn::Error);
  }
  REQUIRE_THROWS_WITH(Options::parse("a=1&b=2&a=3"), "option a is given twice");
}

TEST_CASE("options: the winner's values stay when two sets are merged", "[conn][options]") {
  const Options base{{"a", "1"}, {"b", "2"}};
  const Options merged = base.merged_with({{"b", "3"}, {"c", "4"}});
  REQUIRE(merged.to_string() == "a=1&b=3&c=4");
  REQUIRE(base.to_string() == "a=1&b=2");
}

TEST_CASE("options: flags are words for yes and no", "[conn][options]") {
  for (const char* yes : {"yes", "on", "true", "1", "YES"}) {
    REQUIRE(Options{{"f", yes}}.flag("f", false));
  }
  for (const char* no : {"no", "off", "false", "0", "No"}) {
    REQUIRE_FALSE(Options{{"f", no}}.flag("f", true));
  }
  REQUIRE(Options{}.flag("f", true));
  REQUIRE_THROWS_WITH((Options{{"f", "maybe"}}.flag("f", true)),
                      "option f=maybe: must be yes or no");
  REQUIRE_THROWS_AS((Options{{"f", ""}}.flag("f", true)), conn::Error);
}

TEST_CASE("options: numbers are plain digits within their range", "[conn][options]") {
  const auto number = [](const char* text) { return Options{{"n", text}}.number("n", 7, 1, 100); };
  REQUIRE(number("1") == 1);
  REQUIRE(number("100") == 100);
  REQUIRE(Options{}.number("n", 7, 1, 100) == 7);
  for (const char* bad : {"0", "101", "-1", "+1", " 1", "1 ", "1k", "0x1", "", "1.5",
                          "18446744073709551616", "99999999999999999999999"}) {
    CAPTURE(bad);
    REQUIRE_THROWS_WITH(number(bad), Contains("must be a number from 1 to 100"));
  }
}

TEST_CASE("options: sizes count in powers of 1024", "[conn][options]") {
  const auto bytes = [](const char* text) {
    return Options{{"b", text}}.bytes("b", 5, 0, std::uint64_t{1} << 60);
  };
  REQUIRE(bytes("65536") == 65536);
  REQUIRE(bytes("64k") == 65536);
  REQUIRE(bytes("64KB") == 65536);
  REQUIRE(bytes("64KiB") == 65536);
  REQUIRE(bytes("1m") == 1 << 20);
  REQUIRE(bytes("1g") == 1 << 30);
  REQUIRE(bytes("2T") == std::uint64_t{1} << 41);
  REQUIRE(bytes("12b") == 12);
  for (const char* bad : {"k", "1.5m", "-1", "1 k", "1kk", "18446744073709551615k", ""}) {
    CAPTURE(bad);
    REQUIRE_THROWS_AS(bytes(bad), conn::Error);
  }
  REQUIRE(Options{{"b", "1m"}}.bytes("b", 0, 4096, 1 << 20) == 1 << 20);
  REQUIRE(Options{{"b", "4k"}}.bytes("b", 0, 4096, 1 << 20) == 4096);
  REQUIRE_THROWS_WITH((Options{{"b", "2m"}}.bytes("b", 0, 4096, 1 << 20)),
                      "option b=2m: must be a size from 4k to 1m, as in 65536, 64k or 1m");
}

TEST_CASE("options: times have units, and a plain number counts seconds", "[conn][options]") {
  const auto time = [](const char* text) { return Options{{"t", text}}.duration("t", 1s, 0s, 1h); };
  REQUIRE(time("3s") == 3s);
  REQUIRE(time("3") == 3s);
  REQUIRE(time("250ms") == 250ms);
  REQUIRE(time("20us") == 20us);
  REQUIRE(time("20ns") == 20ns);
  REQUIRE(time("2m") == 2min);
  REQUIRE(time("1h") == 1h);
  REQUIRE(time("0") == 0s);
  REQUIRE(Options{}.duration("t", 9s, 0s, 1h) == 9s);
  for (const char* bad :
       {"61m", "1d", "-1s", "s", "1.5s", "", "9223372036854775807s", "18446744073709551615ns"}) {
    CAPTURE(bad);
    REQUIRE_THROWS_AS(time(bad), conn::Error);
  }
  REQUIRE_THROWS_WITH((Options{{"t", "1us"}}.duration("t", 1s, 1ms, 90s)),
                      "option t=1us: must be a time from 1ms to 90s, as in 3s, 250ms or 2m");
}

TEST_CASE("options: an unknown key is named together with the known ones", "[conn][options]") {
  const Options options{{"backlog", "1"}, {"colour", "red"}};
  REQUIRE_NOTHROW(options.only("tcp", {"backlog", "colour"}));
  REQUIRE_THROWS_WITH(options.only("tcp", {"backlog", "nodelay"}),
                      "tcp has no option colour; there are backlog, nodelay");
  REQUIRE_THROWS_WITH(options.only("x", {}), "x has no option backlog; it has none");
}
