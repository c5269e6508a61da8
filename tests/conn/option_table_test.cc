// SPDX-License-Identifier: BSD-3-Clause
// Tables of options: they must agree with what the parsers accept.

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "conn/fallback_type.h"
#include "conn/transports/transports.h"
#include "conn/url/option_table.h"
#include "tests/support/catch.h"
#include "tests/support/certificates.h"
#include "tests/support/testing.h"

using conn::FormerOption;
using conn::OptionReader;
using conn::OptionRow;
using conn::Options;
using conn::OptionSide;
using conn::OptionTable;
using conn::OptionWord;
using namespace std::chrono_literals;
using testing::Contains;

namespace {

constexpr std::array kColours{OptionWord{"red", 1}, OptionWord{"blue", 2}};
constexpr std::array kOthers{OptionWord{"green", 1}, OptionWord{"white", 2}};

const OptionTable& table() {
  static const OptionTable all(
      "glue",
      {{"first",
        {OptionRow::flag("dry", OptionSide::kBoth, true, "it is"),
         OptionRow::number("count", OptionSide::kListener, 5, 1, 9, "how many"),
         OptionRow::bytes("size", OptionSide::kBoth, 65536, 0, 1 << 30, "how large"),
         OptionRow::duration("time", OptionSide::kConnecting, 5min, 1ms, 24h, "how long")}},
       {"second",
        {OptionRow::word("colour", OptionSide::kBoth, kColours, 2, "of it"),
         OptionRow::bytes("limit", OptionSide::kBoth, 0, 0, 4096, "or none").or_word({"no"}),
         OptionRow::bytes("more", OptionSide::kBoth, 10, 1, 1024, "of it")
             .by_default("as `size`")
             .at_least("`size`"),
         OptionRow::duration("spin", OptionSide::kBoth, 0s, 0s, 1s, "or a word").or_word(kColours),
         OptionRow::text("name", OptionSide::kBoth, "nobody's", "a name", "whose")
             .of(conn::OptionPlace::kFile)
             .tuning()}}},
      {FormerOption::renamed("amount", "count"), FormerOption::renamed("blocks", "more", 16),
       FormerOption::gone("tar", "leave it out, glue has none")});
  return all;
}

const OptionRow& row(const OptionTable& of, std::string_view name) {
  for (const conn::OptionGroup& group : of.groups())
    for (const OptionRow& each : group.rows)
      if (each.name() == name) return each;
  throw std::out_of_range(std::string(name));
}
std::string said(std::string_view name) {
  return row(table(), name).default_text() + "; " + row(table(), name).range_text();
}

}  // namespace

TEST_CASE("options: a table says defaults and values as a URL has them", "[conn][options]") {
  CHECK(said("dry") == "yes; flag");
  CHECK(said("count") == "5; 1 to 9");
  CHECK(said("size") == "64k; 0 to 1g");
  CHECK(said("time") == "5m; 1ms to 24h");
  CHECK(said("colour") == "blue; blue, red");
  CHECK(said("limit") == "no; no, 0 to 4k");
  CHECK(said("more") == "as `size`; `size` to 1k");
  CHECK(said("spin") == "red; red, blue, 0 to 1s");
  CHECK(said("name") == "nobody's; a name");
  CHECK(row(table(), "count").side() == OptionSide::kListener);
  CHECK(row(table(), "time").meaning() == "how long");
  using Words = std::vector<std::string>;
  CHECK(row(table(), "dry").words() == Words{"yes", "no"});
  CHECK(row(table(), "colour").words() == Words{"blue", "red"});
  CHECK(row(table(), "limit").words() == Words{"no"});
  CHECK(row(table(), "spin").words() == Words{"red", "blue"});
  CHECK(row(table(), "count").words().empty());
  CHECK(row(table(), "name").words().empty());
  CHECK(row(table(), "count").place() == conn::OptionPlace::kNone);
  CHECK(row(table(), "name").place() == conn::OptionPlace::kFile);
  CHECK(row(table(), "name").is_tuning());
  CHECK_FALSE(row(table(), "count").is_tuning());
}

TEST_CASE("options: an old name is read as the option that replaced it", "[conn][options]") {
  const Options old = Options::parse("amount=9&blocks=4");
  table().only(old);
  OptionReader read(table(), old);
  CHECK(read.given("count"));
  CHECK(read.number("count") == 9);
  CHECK(read.number("more") == 64);
  CHECK(table().find("amount") == table().find("count"));
  CHECK(table().has("blocks"));
  CHECK_FALSE(table().renamed(Options::parse("count=9")));
  CHECK(table().renamed(old)->to_string() == "count=9&more=64");

  const auto reads = [](const char* text) { OptionReader(table(), Options::parse(text)); };
  CHECK_THROWS_WITH(reads("amount=1&count=1"), "amount is the old name of count: give one of them");
  CHECK_NOTHROW(reads("blocks=64"));
  CHECK_THROWS_WITH(reads("blocks=65"), Contains("blocks=65: must be a number from 0 to 64"));
  CHECK_THROWS_WITH(reads("blocks=4k"), Contains("blocks=4k: must be"));
}

TEST_CASE("options: one that is gone is an error that says what to do", "[conn][options]") {
  const Options old = Options::parse("tar=1");
  CHECK_NOTHROW(table().only(old));
  CHECK_THROWS_WITH(OptionReader(table(), old),
                    "glue has no option tar any more: leave it out, glue has none");
  CHECK(table().find("tar") == nullptr);
  CHECK(table().gone("tar") == "glue has no option tar any more: leave it out, glue has none");
  CHECK(table().gone("amount").empty());
  CHECK(table().gone("count").empty());
  CHECK_THROWS_WITH(table().only(Options::parse("tar=1&weight=2")),
                    Contains("glue has no option weight; there are dry, ") && !Contains("tar"));
}

// Every transport: at most 90 options, of which an old name is none, and each former option does
// what its table says. Options of one name in several tables count once, as they are learnt once.
TEST_CASE("options: all transports together have at most 90", "[conn][options]") {
  const conn::Registry registry = conn::all_transports();
  std::vector<const OptionTable*> tables{&conn::list_options()};
  for (const auto& type : registry.types())
    if (std::find(tables.begin(), tables.end(), type->option_table()) == tables.end())
      tables.push_back(type->option_table());
  std::set<std::string> options;
  std::size_t tuning = 0;
  for (const OptionTable* each : tables) {
    for (const conn::OptionGroup& group : each->groups()) {
      for (const OptionRow& one : group.rows) {
        const bool is_new = options.insert(one.name()).second;
        tuning += is_new && one.is_tuning() ? 1 : 0;
      }
    }
    for (const FormerOption& former : each->former()) {
      CAPTURE(each->owner(), former.name);
      const auto is_it = [&](const OptionRow& one) { return one.name() == former.name; };
      for (const conn::OptionGroup& group : each->groups())
        CHECK(std::none_of(group.rows.begin(), group.rows.end(), is_it));
      CHECK(former.is_gone() == !former.advice.empty());
      CHECK((former.is_gone() || each->find(former.now) != nullptr));
    }
  }
  CHECK(options.size() <= 90);
  CHECK(tuning > 0);
  CHECK(tuning < options.size() / 2);
}

TEST_CASE("options: a table is read by kind, default and bounds of its rows", "[conn][options]") {
  const Options none;
  OptionReader defaults(table(), none);
  CHECK(defaults.flag("dry"));
  CHECK(defaults.number("count") == 5);
  CHECK(defaults.number("size") == 65536);
  CHECK(defaults.duration("time") == 5min);
  CHECK(defaults.pick("colour", kColours) == 2);
  CHECK(defaults.is_word("limit"));
  CHECK(defaults.number("limit") == 0);
  CHECK(defaults.number("more", 20, 15) == 20);
  CHECK(defaults.text("name").empty());
  CHECK_FALSE(defaults.given("name"));

  const Options given =
      Options::parse("dry=no&count=9&size=1k&time=2s&colour=red&limit=4k&more=16&name=x");
  OptionReader read(table(), given);
  CHECK_FALSE(read.flag("dry"));
  CHECK(read.number("count") == 9);
  CHECK(read.number("size") == 1024);
  CHECK(read.duration("time") == 2s);
  CHECK(read.pick("colour", kColours) == 1);
  CHECK_FALSE(read.is_word("limit"));
  CHECK(read.number("limit") == 4096);
  CHECK(read.number("more", 20, 15) == 16);
  CHECK(read.text("name") == "x");

  const Options wrong = Options::parse("count=10&time=25h&colour=green&more=14&limit=yes");
  OptionReader bad(table(), wrong);
  CHECK_THROWS_WITH(bad.number("count"), Contains("a number from 1 to 9"));
  CHECK_THROWS_WITH(bad.duration("time"), Contains("a time from 1ms to 24h"));
  CHECK_THROWS_WITH(bad.pick("colour", kColours), Contains("must be one of blue, red"));
  CHECK_THROWS_AS(bad.number("more", 20, 15), conn::Error);
  CHECK_THROWS_AS(bad.number("limit"), conn::Error);
  CHECK_THROWS_WITH(table().only(Options{{"weight", "1"}}),
                    "glue has no option weight; there are dry, count, size, time, colour, limit, "
                    "more, spin, name");
}

TEST_CASE("options: a table and its parser that do not fit are noticed", "[conn][options]") {
  const Options none;
  OptionReader read(table(), none);
  CHECK_THROWS_AS(read.number("weight"), std::logic_error);
  CHECK_THROWS_AS(read.number("time"), std::logic_error);
  CHECK_THROWS_AS(read.pick("colour", kOthers), std::logic_error);
  CHECK_THROWS_WITH(read.finish(), Contains("nobody reads the option dry of glue"));
}

// The minimum and maximum of the tables are accepted, nonsense is not.
TEST_CASE("options: every transport takes what its table says", "[conn][options]") {
  const conn::Registry registry = conn::all_transports();
  const testing::TempFolder folder;
  for (const auto& type : registry.types()) {
    CAPTURE(type->name());
    REQUIRE(type->option_table() != nullptr);
    for (const conn::OptionGroup& group : type->option_table()->groups()) {
      for (const OptionRow& each : group.rows) {
        const std::string range = each.range_text();
        CAPTURE(each.name(), range);
        CHECK_FALSE(each.meaning().empty());
        const auto takes = [&](const std::string& value) {
          CAPTURE(value);
          CHECK_NOTHROW(type->configure({{each.name(), value}}));
        };
        for (const std::string& word : each.words()) {
          CAPTURE(word);
          conn::Options options{{each.name(), word}};
          // Two options need another one: CA certificates, or a revocation list.
          if (each.name() == "auth-clients") options.set("ca-dir", "/");
#if AECONN_TLS
          if (each.name() == "crl-check") options.set("crl", testing::Authority(folder).revoke({}));
#endif
          CHECK_NOTHROW(type->configure(options));
        }
        const std::size_t to = range.rfind(" to ");
        if (to == std::string::npos || range.starts_with("octal")) continue;
        const std::size_t begin = range.rfind(", ", to);
        const std::string least = range.substr(begin == std::string::npos ? 0 : begin + 2,
                                               to - (begin == std::string::npos ? 0 : begin + 2));
        takes(range.substr(to + 4));
        if (least.front() != '`') takes(least);
        if (each.default_text().find_first_of(" '") == std::string::npos)
          takes(each.default_text());
        CHECK_THROWS_AS(type->configure({{each.name(), "99999999999999t"}}), conn::Error);
        CHECK_THROWS_AS(type->configure({{each.name(), "nonsense"}}), conn::Error);
      }
    }
  }
}
