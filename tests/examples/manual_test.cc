// SPDX-License-Identifier: BSD-3-Clause
#include "programs/manual/manual.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

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
  const char* const arguments[] = {"some-program", "--write-page", "bash"};  // not a file
  std::FILE* const page = std::tmpfile();
  REQUIRE(page != nullptr);
  std::fflush(stdout);
  const int before = dup(STDOUT_FILENO);
  dup2(fileno(page), STDOUT_FILENO);
  CHECK_THROWS_AS(manual::parse(sample.app, arguments), CLI::Success);
  dup2(before, STDOUT_FILENO);
  close(before);
  std::rewind(page);
  std::string text(1 << 20, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), page));
  std::fclose(page);
  CHECK(has(text, "complete -F _some_program some-program\n"));
  const char* const wrong[] = {"some-program", "--write-page", "html"};
  CHECK_THROWS_AS(sample.app.parse(3, wrong), CLI::ValidationError);
  CHECK_FALSE(has(sample.app.help(), "write-page"));
}

namespace {

/// All kinds of options that the programs have.
struct Kinds {
  CLI::App app{"Takes values.", "some-program"};
  CLI::App* const command = app.add_subcommand("command", "of it");
  std::string one, two, number, place;
  std::vector<std::string> several, places;
  bool flag = false;
  Kinds() {
    command->add_option("-o,--one", one, "a text")->capture_default_str();
    command->add_option_function<std::string>(
        "--two", [this](const std::string& text) { two = text; }, "a text");
    command->add_option("--several", several, "texts")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    command->add_flag("-f", flag, "a flag");
    command->add_option("place", place, "a text")->required();
    command->add_option("places", places, "texts");
  }
};

std::vector<std::string> odd_words() {
  std::vector<std::string> all{
      "",  "[v]",     "[a,b]",        "[]",   "[",   "]",     "a,b", "{}",   "%%",  "@file", "@@",
      "=", "a=b",     "\"q\"",        "'q'",  "`x`", "$HOME", "\\n", " ",    " a ", "a\nb",  "#c",
      ";", "command", "B\"(\\x41)\"", "true", "++",  "/o",    "\1",  "\1\1x"};
  std::string bytes;
  for (int c = 1; c < 256; ++c) {
    all.emplace_back(1, static_cast<char>(c));
    all.push_back("[" + std::string(1, static_cast<char>(c)) + "]");
    bytes += static_cast<char>(c);
  }
  all.push_back(bytes);
  return all;
}

void parse(CLI::App& app, const std::vector<std::string>& words) {
  std::vector<const char*> arguments{"some-program"};
  for (const std::string& each : words) arguments.push_back(each.c_str());
  (void)manual::parse(app, arguments);
}

}  // namespace

TEST_CASE("manual: no byte of a value is changed, whatever kind of option has it", "[manual]") {
  for (const std::string& word : odd_words()) {
    CAPTURE(word);
    const bool dash = word.starts_with('-') && word.size() > 0;
    Kinds kinds;
    std::vector<std::string> line{
        "command", "-o", word, "--two", word, "--several", word, "-f", "--several=" + word};
    if (dash) line.emplace_back("--");
    line.insert(line.end(), {word, word, word});
    REQUIRE_NOTHROW(parse(kinds.app, line));
    CHECK(kinds.one == word);
    CHECK(kinds.two == word);
    CHECK(kinds.several == std::vector<std::string>{word, word});
    CHECK(kinds.flag);
    CHECK(kinds.place == word);
    CHECK(kinds.places == std::vector<std::string>{word, word});

    Kinds others;
    line = {"command", "--one=" + word, "--two=" + word, "--", word};
    REQUIRE_NOTHROW(parse(others.app, line));
    CHECK(others.one == word);
    CHECK(others.two == word);
    CHECK(others.place == word);
    if (word.empty()) continue;
    Kinds attached;
    REQUIRE_NOTHROW(parse(attached.app, {"command", "-fo" + word, "x"}));
    CHECK(attached.one == word);
    CHECK(attached.flag);
  }
}

TEST_CASE("manual: a command's words are the command's, from the first on", "[manual]") {
  for (const std::string& word : odd_words()) {
    CAPTURE(word);
    if (word == "-") continue;
    CLI::App app{"Runs commands.", "some-program"};
    std::string option;
    std::vector<std::string> for_help;
    app.add_option("-u", option, "a text");
    app.add_option("words", for_help, "a command");
    app.prefix_command();
    const char* const arguments[] = {"some-program", "-u", word.c_str(), word.c_str(),
                                     "-u",           "--", "--help",     word.c_str()};
    CHECK(manual::parse(app, arguments) ==
          std::vector<std::string>{word, "-u", "--", "--help", word});
    CHECK(option == word);
  }
}

TEST_CASE("manual: what is wrong with a value names the value as it was given", "[manual]") {
  CLI::App app{"Takes a number.", "some-program"};
  int number = 0;
  app.add_option("--number", number, "a number")->check(CLI::Range(1, 5));
  for (const char* const line : {"--number=[7]", "surplus"}) {
    const char* const arguments[] = {"some-program", line};
    std::string what;
    try {
      (void)manual::parse(app, arguments);
    } catch (const CLI::ParseError& error) {
      what = error.what();
    }
    CAPTURE(what);
    CHECK(has(what, line[0] == 's' ? "surplus" : "[7]"));
    CHECK(what.find('\1') == std::string::npos);
  }
}
