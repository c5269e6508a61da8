// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Generates a program's manual page and bash completion from the options that it parses, so that
// they cannot differ. `PROGRAM --write-page man` prints the page in roff (groff_man(7)),
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

/// The values that an option may have, for completion. Words are those that the parser accepts.
class Value {
 public:
  static Value words(std::span<const std::string_view> all);  ///< words must not contain a comma
  static Value file() { return Value("@file", "FILE"); }
  static Value files() { return Value("@files", "FILE"); }  ///< one, or several separated by commas
  static Value folder() { return Value("@folder", "FOLDER"); }
  /// a URL with options of listeners
  static Value listen_url() { return Value("@listen", "URL"); }
  /// A URL with options of the connecting side.
  static Value connect_url() { return Value("@connect", "URL"); }
  /// A value that conn::parse_spin() accepts.
  static Value spin() { return Value("@spin", ""); }
  /// The name of one of `all` transports, optionally followed by a question mark and options of
  /// listeners.
  static Value transport(std::span<const std::string_view> all);
  /// The value of an option in a transport's table.
  static Value of(const std::vector<std::string>& words, conn::OptionPlace place);
  static Value of(const conn::OptionRow& row) { return of(row.words(), row.place()); }

  /// Comma-separated words, or a kind of value that the completion knows, such as "@file"; "-" is
  /// any value.
  const std::string& text() const noexcept { return text_; }
  /// The type of the value that --help shows; empty: what CLI11 shows by itself.
  const std::string& type() const noexcept { return type_; }

 private:
  explicit Value(std::string text, std::string type = "")
      : text_(std::move(text)), type_(std::move(type)) {}
  std::string text_, type_;
};

/// The values that a program's options take; an option without an entry takes any value.
class Values {
 public:
  /// Registers the value of `option` and returns `option`, which is borrowed.
  CLI::Option* add(CLI::Option* option, const Value& value);
  /// Returns Value::text() of an option's value, or "-" if none is registered.
  std::string text(const CLI::Option& option) const;

 private:
  std::map<const CLI::Option*, std::string> texts_;
};

/// Joins words for help texts: "a, b or c".
std::string listed(std::span<const std::string_view> words);
std::string event_loop_help();  ///< help text of --event-loop
std::string spin_help();        ///< help text of --spin

/// Help paragraph of all programs that take URLs.
inline constexpr const char* kPlaces =
    "Addresses are URLs: \"tcp://HOST:PORT\", \"unix:///PATH\", \"shm:///PATH\", "
    "\"rdma://HOST:PORT\", \"tls://HOST:PORT\", \"tls+unix:///PATH\", \"tls+shm:///PATH\", "
    "\"tls+rdma://HOST:PORT\", between a virtual machine and its host \"vsock://CID:PORT\" and "
    "\"tls+vsock://CID:PORT\"; options of the transport follow, as in "
    "\"tcp://0.0.0.0:6379?backlog=1024\": see conn(7).";

/// What a manual page contains besides the options.
struct About {
  struct Example {
    std::string what;     ///< "Serves over TCP and RDMA:"
    std::string command;  ///< "kv-server --listen tcp://127.0.0.1:6379"
  };
  struct Section {
    std::string title;  ///< "SIGNALS"
    std::vector<std::string> paragraphs;
  };
  std::vector<std::string> description;  ///< paragraphs after the program's own description
  std::vector<Section> sections;         ///< between the options and the examples
  std::vector<Example> examples;
  std::vector<std::string> see_also;  ///< "kv-cli(1)"
  std::string version;                ///< library version
  Values values{};
};

/// Returns the manual page of section 1: options by group, subcommands with their options. Hidden
/// options are left out.
std::string man_page(const CLI::App& app, const About& about);
/// Returns the bash completion of options, subcommands and values: words, files, URLs and their
/// options.
std::string bash_completion(const CLI::App& app, const Values& values);
/// For tests: one line per option with a value and per positional argument,
/// "subcommand\t--flag\tvalue", with Value::text().
std::string value_lines(const CLI::App& app, const Values& values);

/// Adds --version: "NAME 0.3.0", then the features of this build (conn::build_text()).
void add_version(CLI::App& app, const std::string& name);
/// Adds the hidden option --write-page. Call it after all other options; `app` must outlive
/// parsing.
void add_to(CLI::App& app, About about);

/// Parses a command line; call it after add_to(). Values are not changed, whereas CLI11 would split
/// brackets ("[a,b]"). With App::prefix_command(), the words starting with the first that is
/// neither an option nor its value are returned unchanged. Throws CLI::ParseError.
std::vector<std::string> parse(CLI::App& app, std::span<const char* const> arguments);
/// Prints what parse() threw: help, version, or the error. Returns 0, or `mistake` for an error, or
/// 1 if writing to standard output fails.
int explain(const CLI::App& app, const CLI::ParseError& error, int mistake);

}  // namespace manual
