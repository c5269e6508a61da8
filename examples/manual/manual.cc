// SPDX-License-Identifier: BSD-3-Clause
#include "examples/manual/manual.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <string_view>
#include <utility>

#include "conn/transports/transports.h"
#include "examples/manual/conn_page.h"
#include "examples/manual/roff.h"

namespace manual {
namespace {

constexpr const char* kFlag = "--write-page";

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

/// Options in the order in which they were added, without what is hidden.
std::vector<const CLI::Option*> shown(const CLI::App& app) {
  std::vector<const CLI::Option*> out;
  for (const CLI::Option* each : app.get_options())
    if (!each->get_group().empty()) out.push_back(each);
  return out;
}

std::vector<const CLI::App*> subcommands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* each) { return !each->get_group().empty(); });
}

std::vector<std::string> flags(const CLI::Option& option) {
  std::vector<std::string> out;
  for (const std::string& name : option.get_snames()) out.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.push_back("--" + name);
  return out;
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

void describe(std::string& out, const CLI::Option& option) {
  out += ".TP\n";
  if (option.get_positional()) {
    out += "\\fI" + plain(option.get_name(true)) + "\\fR";
  } else {
    std::vector<std::string> names = flags(option);
    for (std::string& name : names) name = bold(name);
    out += fmt::format("{}", fmt::join(names, ", "));
    if (takes_value(option)) out += " \\fI" + plain(option.get_type_name()) + "\\fR";
  }
  out += "\n" + plain(option.get_description());
  if (!option.get_default_str().empty())
    out += "\n(default: " + bold(option.get_default_str()) + ")";
  if (option.get_required()) out += "\n(must be given)";
  out += "\n";
}

/// Groups as they first appear; what belongs to none is called `first`.
void describe_all(std::string& out, const CLI::App& app, const std::string& first) {
  std::vector<std::string> groups;
  for (const CLI::Option* option : shown(app))
    if (std::find(groups.begin(), groups.end(), option->get_group()) == groups.end())
      groups.push_back(option->get_group());
  for (const std::string& group : groups) {
    if (group != "Options")
      out += ".SS " + plain(group) + "\n";
    else if (!first.empty())
      out += ".SH " + first + "\n";
    for (const CLI::Option* option : shown(app))
      if (option->get_group() == group) describe(out, *option);
  }
}

std::string synopsis(const CLI::App& app, const std::string& name) {
  std::string out = ".B " + plain(name) + "\n";
  if (!subcommands(app).empty()) return out + ".I command\n.RI [ option ...]\n";
  out += ".RI [ option ...]\n";
  for (const CLI::Option* option : shown(app)) {
    if (!option->get_positional()) continue;
    const std::string dots = option->get_items_expected_max() > 1 ? " ..." : "";
    out += option->get_required() ? fmt::format(".IR {}{}\n", plain(option->get_name(true)), dots)
                                  : fmt::format(".RI [ {}{} ]\n", plain(option->get_name(true)),
                                                dots.empty() ? "" : " ...");
  }
  return out;
}

// ---- bash ---------------------------------------------------------------------------------------

/// Words for compgen -W, of one program or subcommand.
std::string words_of(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::Option* option : shown(app))
    for (const std::string& flag : flags(*option)) words.push_back(flag);
  return fmt::format("{}", fmt::join(words, " "));
}

/// Flags that want a file or anything else as their next word: nothing but files is offered then.
std::string with_values(const CLI::App& app) {
  std::vector<std::string> all;
  for (const CLI::Option* option : shown(app))
    if (!option->get_positional() && takes_value(*option))
      for (const std::string& flag : flags(*option)) all.push_back(flag);
  return fmt::format("{}", fmt::join(all, "|"));
}

void complete_one(std::string& out, const CLI::App& app, const std::string& indent) {
  if (const std::string values = with_values(app); !values.empty())
    out += fmt::format(
        "{}case $previous in\n{}  {}) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n{}esac\n",
        indent, indent, values, indent);
  out += fmt::format("{}words='{}'\n", indent, words_of(app));
}

}  // namespace

std::string man_page(const CLI::App& app, const About& about) {
  const std::string name = app.get_name();
  std::string sentence = app.get_description();
  std::string out = fmt::format(".TH {} 1 \"\" \"aeconn {}\" \"User Commands\"\n",
                                plain(upper(name)), about.version);
  std::string what = sentence;
  if (what.ends_with('.')) what.pop_back();
  if (!what.empty())
    what.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(what.front())));
  out += fmt::format(".SH NAME\n{} \\- {}\n", plain(name), plain(what));
  out += ".SH SYNOPSIS\n" + synopsis(app, name);
  out += ".SH DESCRIPTION\n" + plain(sentence) + "\n";
  for (const std::string& paragraph : about.description) out += ".PP\n" + plain(paragraph) + "\n";
  describe_all(out, app, "OPTIONS");
  const auto commands = subcommands(app);
  if (!commands.empty()) out += ".SH COMMANDS\n";
  for (const CLI::App* command : commands) {
    out += ".SS " + plain(name + " " + command->get_name()) + "\n";
    out += plain(command->get_description()) + ".\n";
    for (const CLI::Option* option : shown(*command)) describe(out, *option);
  }
  for (const About::Section& section : about.sections) {
    out += ".SH " + plain(section.title) + "\n";
    for (std::size_t i = 0; i < section.paragraphs.size(); ++i)
      out += (i == 0 ? "" : ".PP\n") + plain(section.paragraphs[i]) + "\n";
  }
  if (!about.examples.empty()) out += ".SH EXAMPLES\n";
  for (const About::Example& example : about.examples)
    out += ".PP\n" + plain(example.what) + "\n.PP\n.nf\n.RS\n" + plain(example.command) +
           "\n.RE\n.fi\n";
  if (!about.see_also.empty()) {
    out += ".SH SEE ALSO\n";
    for (std::size_t i = 0; i < about.see_also.size(); ++i) {
      const std::string& page = about.see_also[i];
      const std::size_t open = page.find('(');
      out += ".BR " + plain(page.substr(0, open)) + " " + page.substr(open) +
             (i + 1 < about.see_also.size() ? ",\n" : "\n");
    }
  }
  return out;
}

std::string bash_completion(const CLI::App& app) {
  const std::string name = app.get_name();
  std::string function = "_" + name;
  std::replace(function.begin(), function.end(), '-', '_');
  std::string out = fmt::format(
      "# Completion of {} in bash.\n{}() {{\n  local word=${{COMP_WORDS[COMP_CWORD]}} "
      "previous=${{COMP_WORDS[COMP_CWORD-1]}} words=''\n  COMPREPLY=()\n",
      name, function);
  const auto commands = subcommands(app);
  if (commands.empty()) {
    complete_one(out, app, "  ");
  } else {
    std::vector<std::string> names;
    for (const CLI::App* each : commands) names.push_back(each->get_name());
    out += "  case ${COMP_WORDS[1]} in\n";
    for (const CLI::App* each : commands) {
      out += fmt::format("    {})\n", each->get_name());
      complete_one(out, *each, "      ");
      out += "      ;;\n";
    }
    out += fmt::format("  esac\n  [ \"$COMP_CWORD\" -gt 1 ] || words='{} {}'\n",
                       fmt::join(names, " "), words_of(app));
  }
  out += fmt::format(
      "  case $word in\n    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$word\")) ;;\n"
      "    *) COMPREPLY=($(compgen -W \"{}\" -- \"$word\") $(compgen -f -- \"$word\")) ;;\n"
      "  esac\n}}\ncomplete -o filenames -F {} {}\n",
      commands.empty() ? "" : "$([ \"$COMP_CWORD\" -gt 1 ] || echo \"$words\")", function, name);
  return out;
}

void add_version(CLI::App& app, const std::string& name) {
  app.set_version_flag("--version",
                       [name] { return name + " " AECONN_VERSION "\n" + conn::build_text(); });
}

void add_to(CLI::App& app, About about) {
  app.add_option_function<std::string>(
         kFlag,
         [&app, about = std::move(about)](const std::string& page) {
           if (page == "man")
             std::cout << man_page(app, about);
           else if (page == "bash")
             std::cout << bash_completion(app);
           else if (page == "conn")
             std::cout << conn_page(about.version);
           else if (page == "options")
             std::cout << option_lines();
           else
             throw CLI::ValidationError(kFlag, "man, bash, conn or options is wanted");
           throw CLI::Success();
         },
         "")
      ->trigger_on_parse()
      ->group("");
}

}  // namespace manual
