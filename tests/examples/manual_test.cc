// SPDX-License-Identifier: BSD-3-Clause
#include "examples/manual/manual.h"

#include "tests/support/catch.h"

namespace {

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
    app.add_option("file", hidden, "where")->required();
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

TEST_CASE("manual: completion offers options, and files after one that takes a value", "[manual]") {
  Sample sample;
  const std::string bash = manual::bash_completion(sample.app);
  CHECK(has(bash, "_some_program() {"));
  CHECK(has(bash, "-t|--text) COMPREPLY=($(compgen -f"));
  CHECK(has(bash, "words='-h --help -t --text --in-group'"));
  CHECK(has(bash, "complete -o filenames -F _some_program some-program\n"));
  CHECK_FALSE(has(bash, "hidden"));
}

TEST_CASE("manual: --write-page ends the program before anything is missed", "[manual]") {
  Sample sample;
  manual::add_to(sample.app, sample.about);
  const char* const arguments[] = {"some-program", "--write-page", "bash"};  // no file
  CHECK_THROWS_AS(sample.app.parse(3, arguments), CLI::Success);
  const char* const wrong[] = {"some-program", "--write-page", "html"};
  CHECK_THROWS_AS(sample.app.parse(3, wrong), CLI::ValidationError);
  CHECK_FALSE(has(sample.app.help(), "write-page"));
}
