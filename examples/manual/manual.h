// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A program's manual page and its completion in bash, from the options that it parses: so they
// cannot say anything else. `PROGRAM --write-page man` prints the page in roff (groff_man(7)),
// `--write-page bash` the completion, and `--write-page conn` conn(7); the Makefile installs them.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace manual {

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
};

/// The page of section 1: options by group, subcommands with theirs. Hidden options are left out.
std::string man_page(const CLI::App& app, const About& about);
/// Completes options, subcommands, words that an option is limited to, and files.
std::string bash_completion(const CLI::App& app);

/// Adds --version: "NAME 0.2.0", then what this build has (conn::build_text()).
void add_version(CLI::App& app, const std::string& name);
/// Adds --write-page, which is in no help. After all other options; `app` outlives parsing.
void add_to(CLI::App& app, About about);

}  // namespace manual
