// SPDX-License-Identifier: BSD-3-Clause
#include "examples/manual/manual.h"

#include <array>
#include <iostream>
#include <sstream>

#include "tests/support/catch.h"

namespace {

constexpr std::array<std::string_view, 3> kColours{"red", "green", "blue"};

struct Sample {
  CLI::App app{"Does what it is told.", "some-program"};
  std::string text = "none", hidden;
  bool flag = false;
  manual::About about{.description = {".starts with what roff takes for a request\n'and this"},
                      .sections = {{"SIGNALS", {"first", "second"}}},
                      .examples = {{"One:", "some-program -x"}},
                      .see_also = {"other(1)", "conn(7)"},
                      .version = "1.2.3"};
  Sample() {
    app.add_option("-t,--text", text, "A back\\slash, a -dash")->capture_default_str();
    app.add_option("--hidden", hidden, "nobody sees it")->group("");
    app.add_flag("--in-group", flag, "a flag")->group("More");
    about.values.add(app.add_option("--colour", text, "of it"), manual::Value::words(kColours));
    about.values.add(app.add_option("file", hidden, "where"), manual::Value::file())->required();
  }
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("manual: a page has all options, and roff takes no text for a request", "[manual]") {
  Sample sample;
  const std::string page = manual::man_page(sample.app, sample.about);
  CHECK(page.starts_with(".TH SOME\\-PROGRAM 1 \"\" \"aeconn 1.2.3\" \"User Commands\"\n"));
  CHECK(has(page, ".SH NAME\nsome\\-program \\- does what it is told\n"));
  CHECK(has(page, "\n\\&.starts with what roff takes for a request\n\\&'and this\n"));
  CHECK(has(page, ".TP\n\\fB\\-t\\fR, \\fB\\-\\-text\\fR \\fITEXT\\fR\n"));
  CHECK(has(page, "A back\\eslash, a \\-dash\n(default: \\fBnone\\fR)\n"));
  CHECK(has(page, ".TP\n\\fIfile\\fR\nwhere\n(must be given)\n"));
  CHECK(has(page, ".SS More\n.TP\n\\fB\\-\\-in\\-group\\fR\na flag\n"));
  CHECK(has(page, ".SH SIGNALS\nfirst\n.PP\nsecond\n"));
  CHECK(has(page, ".BR other (1),\n.BR conn (7)\n"));
  CHECK_FALSE(has(page, "hidden"));
}

TEST_CASE("manual: completion has options, and what each of them takes", "[manual]") {
  Sample sample;
  const std::string bash = manual::bash_completion(sample.app, sample.about.values);
  CHECK(has(bash, "\n_some_program() {"));
  CHECK(has(bash, "    -t|--text) kind='-' ;;\n    --colour) kind='red,green,blue' ;;\n"));
  CHECK(has(bash, "  free='@file'\n  flags='-h,--help,-t,--text,--in-group,--colour'\n"));
  CHECK(has(bash, "complete -F _some_program some-program\n"));
  CHECK_FALSE(has(bash, "hidden"));
  CHECK(has(bash, "\ntcp nodelay B yes,no\n"));
  CHECK(has(bash, " unix=unix"));
  CHECK(manual::value_lines(sample.app, sample.about.values) ==
        "\t--text\t-\n\t--colour\tred,green,blue\n\t\t@file\n");
}

TEST_CASE("manual: what an option of a transport names is completed as such", "[manual]") {
  using conn::OptionPlace;
  CHECK(manual::Value::of({"a", "b"}, OptionPlace::kNone).text() == "a,b");
  CHECK(manual::Value::of({}, OptionPlace::kNone).text() == "-");
  CHECK(manual::Value::of({}, OptionPlace::kFile).text() == "@file");
  CHECK(manual::Value::of({}, OptionPlace::kFiles).text() == "@files");
  CHECK(manual::Value::of({}, OptionPlace::kFolder).text() == "@folder");
  CHECK(manual::listed({}).empty());
  CHECK(manual::listed(kColours) == "red, green or blue");
}

TEST_CASE("manual: --write-page ends the program before anything is missed", "[manual]") {
  Sample sample;
  manual::add_to(sample.app, sample.about);
  const char* const arguments[] = {"some-program", "--write-page", "bash"};  // no file
  std::ostringstream page;
  std::streambuf* const before = std::cout.rdbuf(page.rdbuf());
  CHECK_THROWS_AS(sample.app.parse(3, arguments), CLI::Success);
  std::cout.rdbuf(before);
  CHECK(has(page.str(), "complete -F _some_program some-program\n"));
  const char* const wrong[] = {"some-program", "--write-page", "html"};
  CHECK_THROWS_AS(sample.app.parse(3, wrong), CLI::ValidationError);
  CHECK_FALSE(has(sample.app.help(), "write-page"));
}
