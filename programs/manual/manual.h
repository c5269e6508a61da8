// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A program's manual page and its completion in bash, from the options that it parses: so they
// cannot say anything else. `PROGRAM --write-page man` prints the page in roff (groff_man(7)),
// `--write-page bash` the completion, and `--write-page conn` conn(7); the Makefile installs them.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conn/url/option_table.h"

namespace manual {

/// What may stand for a value, for completion. The words are those that the parser compares with.
class Value {
 public:
  static Value words(std::span<const std::string_view> all);  ///< none has a comma
  static Value file() { return Value("@file", "FILE"); }
  static Value files() { return Value("@files", "FILE"); }  ///< one, or several by commas
  static Value folder() { return Value("@folder", "FOLDER"); }
  static Value listen_url() { return Value("@listen", "URL"); }    ///< options of listeners
  static Value connect_url() { return Value("@connect", "URL"); }  ///< options of the other side
  static Value spin() { return Value("@spin", ""); }               ///< as conn::parse_spin()
  /// One of these transports, and options of listeners after a question mark.
  static Value transport(std::span<const std::string_view> all);
  /// As an option of a transport's table.
  static Value of(const std::vector<std::string>& words, conn::OptionPlace place);
  static Value of(const conn::OptionRow& row) { return of(row.words(), row.place()); }

  /// Words by commas, or a kind that completion knows; "-": anything.
  const std::string& text() const noexcept { return text_; }
  /// For --help; empty: as it is.
  const std::string& type() const noexcept { return type_; }

 private:
  explicit Value(std::string text, std::string type = "")
      : text_(std::move(text)), type_(std::move(type)) {}
  std::string text_, type_;
};

/// What the options of a program take; one that is not here takes anything.
class Values {
 public:
  /// Returns the option, which is borrowed.
  CLI::Option* add(CLI::Option* option, const Value& value);
  /// Value::text(), "-" without one.
  std::string text(const CLI::Option& option) const;

 private:
  std::map<const CLI::Option*, std::string> texts_;
};

/// "a, b or c", for help.
std::string listed(std::span<const std::string_view> words);
std::string event_loop_help();  ///< of --event-loop
std::string spin_help();        ///< of --spin

/// The paragraph of every program that takes URLs.
inline constexpr const char* kPlaces =
    "A place is a URL: \"tcp://HOST:PORT\", \"unix:///PATH\", \"tls://HOST:PORT\", "
    "\"tls+unix:///PATH\", \"rdma://HOST:PORT\", \"tls+rdma://HOST:PORT\"; options of the "
    "transport follow it, as in \"tcp://0.0.0.0:6379?backlog=1024\": see conn(7).";

/// What the options do not say.
struct About {
  struct Example {
    std::string what;     ///< "Serves over TCP and RDMA:"
    std::string command;  ///< "kv-server --listen tcp://127.0.0.1:6379"
  };
  struct Section {
    std::string title;  ///< "SIGNALS"
    std::vector<std::string> paragraphs;
  };
  std::vector<std::string> description;  ///< paragraphs after the program's own sentence
  std::vector<Section> sections;         ///< between the options and the examples
  std::vector<Example> examples;
  std::vector<std::string> see_also;  ///< "kv-cli(1)"
  std::string version;                ///< of the library
  Values values{};
};

/// The page of section 1: options by group, subcommands with theirs. Hidden options are left out.
std::string man_page(const CLI::App& app, const About& about);
/// Completes options, subcommands, and values: words, files, URLs and the options of these.
std::string bash_completion(const CLI::App& app, const Values& values);
/// For tests: a line for each option that takes a value and for what is no option,
/// "subcommand\t--flag\tvalue", as Value::text().
std::string value_lines(const CLI::App& app, const Values& values);

/// Adds --version: "NAME 0.2.0", then what this build has (conn::build_text()).
void add_version(CLI::App& app, const std::string& name);
/// Adds --write-page, which is in no help. After all other options; `app` outlives parsing.
void add_to(CLI::App& app, About about);

/// Parses a command line, after add_to(): no byte of a value is changed, where CLI11 takes brackets
/// apart ("[a,b]"). With App::prefix_command() the words from the first on that is neither an
/// option nor its value are returned as they are. Throws CLI::ParseError.
std::vector<std::string> parse(CLI::App& app, std::span<const char* const> arguments);
/// Prints what parse() threw: help, a version, or what is wrong. Returns 0, or `mistake`, or 1
/// where standard output fails.
int explain(const CLI::App& app, const CLI::ParseError& error, int mistake);

}  // namespace manual
