// SPDX-License-Identifier: BSD-3-Clause
#include "programs/manual/manual.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <string_view>
#include <utility>

#include "ae/loop_names.h"
#include "conn/transports/transports.h"
#include "conn/url/spin_option.h"
#include "programs/manual/bash.h"
#include "programs/manual/conn_page.h"
#include "programs/manual/roff.h"
#include "programs/service/standard_streams.h"

namespace manual {
namespace {

constexpr const char* kFlag = "--write-page";

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

/// Options in registration order, without hidden ones.
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

/// Groups in order of first appearance; options without a group come under `first`.
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

/// The flags of one program or subcommand.
std::string flags_of(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::Option* option : shown(app))
    for (const std::string& flag : flags(*option)) words.push_back(flag);
  return fmt::format("{}", fmt::join(words, ","));
}

/// Sets kind (what the preceding flag takes), free (what may appear without a flag) and flags.
void complete_one(std::string& out, const CLI::App& app, const Values& values,
                  const std::string& indent) {
  std::string cases, free = "-";
  for (const CLI::Option* option : shown(app)) {
    if (!takes_value(*option)) continue;
    if (option->get_positional())
      free = values.text(*option);
    else
      cases += fmt::format("{}  {}) kind='{}' ;;\n", indent, fmt::join(flags(*option), "|"),
                           values.text(*option));
  }
  if (!cases.empty()) out += fmt::format("{0}case $previous in\n{1}{0}esac\n", indent, cases);
  out += fmt::format("{0}free='{1}'\n{0}flags='{2}'\n", indent, free, flags_of(app));
}

}  // namespace

Value Value::words(std::span<const std::string_view> all) {
  return Value(fmt::format("{}", fmt::join(all, ",")));
}
Value Value::transport(std::span<const std::string_view> all) {
  return Value("@transport:" + words(all).text());
}
Value Value::of(const std::vector<std::string>& words, conn::OptionPlace place) {
  switch (place) {
    case conn::OptionPlace::kFile:
      return file();
    case conn::OptionPlace::kFiles:
      return files();
    case conn::OptionPlace::kFolder:
      return folder();
    case conn::OptionPlace::kNone:
      break;
  }
  return Value(words.empty() ? "-" : fmt::format("{}", fmt::join(words, ",")));
}

CLI::Option* Values::add(CLI::Option* option, const Value& value) {
  if (!value.type().empty()) option->type_name(value.type());
  texts_[option] = value.text();
  return option;
}
std::string Values::text(const CLI::Option& option) const {
  const auto found = texts_.find(&option);
  return found == texts_.end() ? "-" : found->second;
}

std::string listed(std::span<const std::string_view> words) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i)
    out.append(i == 0 ? "" : i + 1 == words.size() ? " or " : ", ").append(words[i]);
  return out;
}

std::string event_loop_help() {
  return "Kind of the event loops: " + listed(ae::loop_names()) +
         "; only the first requires a library";
}
std::string spin_help() {
  return fmt::format("How a loop waits: {} or a time; with options as in auto&spin-max=50us",
                     fmt::join(conn::spin_words(), ", "));
}

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

std::string bash_completion(const CLI::App& app, const Values& values) {
  const std::string name = app.get_name();
  std::string function = "_" + name;
  std::replace(function.begin(), function.end(), '-', '_');
  std::string out = fmt::format("# Completion of {} in bash.\n", name);
  out += bash_functions(function);
  out += fmt::format(
      "{0}() {{\n  local IFS=$' \\t\\n' words cur raw quote kind='' free=- flags=''\n{1}"
      "  COMPREPLY=()\n  {0}_scan\n  local previous=${{words[-1]}}\n"
      "  [[ $cur != --*=* ]] || {{ previous=${{cur%%=*}} && cur=${{cur#*=}} && kind=-; }}\n",
      function, bash_tables());
  const auto commands = subcommands(app);
  if (commands.empty()) {
    complete_one(out, app, values, "  ");
  } else {
    std::vector<std::string> names;
    for (const CLI::App* each : commands) names.push_back(each->get_name());
    out += "  case ${words[1]-} in\n";
    for (const CLI::App* each : commands) {
      out += fmt::format("    {})\n", each->get_name());
      complete_one(out, *each, values, "      ");
      out += "      ;;\n";
    }
    out += fmt::format("    '') free='{}' flags='{}' ;;\n  esac\n", fmt::join(names, ","),
                       flags_of(app));
  }
  out += fmt::format(
      "  if [[ -n $kind ]]; then\n    {0}_value \"$kind\"\n"
      "  elif [[ $cur == -* || (-z $cur && $free == -) ]]; then\n    {0}_value \"$flags\"\n"
      "  else\n    {0}_value \"$free\"\n  fi\n}}\ncomplete -F {0} {1}\n",
      function, name);
  return out;
}

std::string value_lines(const CLI::App& app, const Values& values) {
  std::string out;
  const auto add = [&](const CLI::App& of, const std::string& command) {
    for (const CLI::Option* option : shown(of))
      if (takes_value(*option))
        out += fmt::format("{}\t{}\t{}\n", command,
                           option->get_positional() ? "" : flags(*option).back(),
                           values.text(*option));
  };
  add(app, "");
  for (const CLI::App* each : subcommands(app)) add(*each, each->get_name());
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
             service::print(man_page(app, about));
           else if (page == "bash")
             service::print(bash_completion(app, about.values));
           else if (page == "conn")
             service::print(conn_page(about.version));
           else if (page == "options")
             service::print(option_lines());
           else if (page == "values")
             service::print(value_lines(app, about.values));
           else
             throw CLI::ValidationError(kFlag, "man, bash, conn, options or values is wanted");
           throw CLI::Success();
         },
         "")
      ->trigger_on_parse()
      ->group("");
}

// ---- parsing ------------------------------------------------------------------------------------

namespace {

// Prefixed to each value so that CLI11 does not see a bracket at its beginning.
constexpr char kMark = '\1';

const auto kAll = [](const CLI::App*) { return true; };

/// The subcommand with this name, or null.
const CLI::App* command_of(const CLI::App& app, const std::string& name) {
  for (const CLI::App* each : app.get_subcommands(kAll))
    if (each->check_name(name)) return each;
  return nullptr;
}

/// Makes each option remove the mark from its value before any validator sees it.
void take_marks(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (!takes_value(*option)) continue;
    option->transform(
        [](std::string text) { return text.starts_with(kMark) ? text.substr(1) : text; });
    // A repeatable option takes one value per occurrence and does not consume following words.
    if (!option->get_positional()) option->allow_extra_args(false);
  }
  for (CLI::App* each : app.get_subcommands(kAll)) take_marks(*each);
}

/// Replaces an error whose text contains marks.
class Unmarked : public CLI::ParseError {
 public:
  Unmarked(std::string name, std::string text, int code)
      : CLI::ParseError(std::move(name), std::move(text), code) {}
};

std::string without_marks(std::string text) {
  std::erase(text, kMark);
  return text;
}

constexpr std::size_t kNext = std::string::npos;  // the value is the next argument

/// Offset in `argument` at which the option's value begins; kNext; 0 if the option takes none.
std::size_t value_in(const CLI::App& app, const std::string& argument) {
  const auto takes = [&app](const std::string& name) {
    const CLI::Option* const option = app.get_option_no_throw(name);
    return option != nullptr && takes_value(*option);
  };
  if (argument.starts_with("--")) {
    const std::size_t equals = argument.find('=');
    if (!takes(argument.substr(0, equals))) return 0;
    return equals == std::string::npos ? kNext : equals + 1;
  }
  for (std::size_t i = 1; i < argument.size(); ++i)
    if (takes({'-', argument[i]})) return i + 1 == argument.size() ? kNext : i + 1;
  return 0;
}

}  // namespace

std::vector<std::string> parse(CLI::App& app, std::span<const char* const> arguments) {
  take_marks(app);
  std::vector<std::string> marked, words;
  const CLI::App* at = &app;
  bool options = true, value = false;
  for (std::string each : arguments.subspan(std::min<std::size_t>(1, arguments.size()))) {
    if (!words.empty()) {
      words.push_back(std::move(each));
      continue;
    }
    const CLI::App* const command = options ? command_of(*at, each) : nullptr;
    if (std::exchange(value, false)) {
      each.insert(each.begin(), kMark);
    } else if (options && each == "--") {
      options = false;
      if (app.get_prefix_command()) continue;
    } else if (options && each.size() > 1 && each[0] == '-') {
      if (const std::size_t begin = value_in(*at, each); begin == kNext)
        value = true;
      else if (begin != 0)
        each.insert(begin, 1, kMark);
    } else if (command != nullptr) {
      at = command;
    } else if (app.get_prefix_command()) {
      words.push_back(std::move(each));
      continue;
    } else {
      each.insert(each.begin(), kMark);
    }
    marked.push_back(std::move(each));
  }
  std::reverse(marked.begin(), marked.end());
  try {
    app.parse(std::move(marked));
  } catch (const CLI::ParseError& error) {
    const std::string text = error.what();
    if (text.find(kMark) == std::string::npos) throw;
    throw Unmarked(error.get_name(), without_marks(text), error.get_exit_code());
  }
  return words;
}

int explain(const CLI::App& app, const CLI::ParseError& error, int mistake) try {
  std::ostringstream out, ignored;
  app.exit(error, out, ignored);
  service::print(out.str());
  if (error.get_exit_code() == 0) return 0;
  service::complain(app.get_name(), error.what());
  return mistake;
} catch (const service::StreamError& failure) {
  service::complain(app.get_name(), failure.what());
  return 1;
}

}  // namespace manual
