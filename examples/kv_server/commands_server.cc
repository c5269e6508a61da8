// SPDX-License-Identifier: BSD-3-Clause
// TIME, DEBUG, SHUTDOWN and COMMAND.

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "command.h"
#include "resp_text.h"

namespace kv {
namespace {

bool is_subcommand(const Command& command) {
  return command.name.find('|') != std::string_view::npos;
}

/// Words as a RESP set of status replies.
void reply_words(Call& call, const std::vector<std::string>& words) {
  call.reply.set(words.size());
  for (const std::string& word : words) call.reply.simple(word);
}

std::vector<std::string> flag_words(const Command& command) {
  static constexpr struct {
    std::uint32_t flag;
    std::string_view word;
  } kWords[] = {{kWrite, "write"},         {kReadOnly, "readonly"}, {kDenyOom, "denyoom"},
                {kAdmin, "admin"},         {kNoScript, "noscript"}, {kLoading, "loading"},
                {kStale, "stale"},         {kFast, "fast"},         {kNoAuth, "no_auth"},
                {kAllowBusy, "allow_busy"}};
  std::vector<std::string> words;
  for (const auto& known : kWords) {
    if ((command.flags & known.flag) != 0) words.emplace_back(known.word);
  }
  return words;
}

std::vector<std::string> category_words(const Command& command) {
  std::vector<std::string> words;
  if (command.group == "generic") words.emplace_back("@keyspace");
  if ((command.flags & kReadOnly) != 0) words.emplace_back("@read");
  if ((command.flags & kWrite) != 0) words.emplace_back("@write");
  if (command.group == "string") words.emplace_back("@string");
  if ((command.flags & kAdmin) != 0) words.emplace_back("@admin");
  if ((command.flags & kDangerous) != 0) words.emplace_back("@dangerous");
  words.emplace_back((command.flags & kFast) != 0 ? "@fast" : "@slow");
  if (command.group == "connection") words.emplace_back("@connection");
  return words;
}

void reply_command_info(Call& call, const Command* command) {
  if (command == nullptr) return call.reply.null();
  ReplyWriter& reply = call.reply;
  reply.array(10);
  reply.bulk(command->name);
  reply.integer(command->arity);
  reply_words(call, flag_words(*command));
  reply.integer(command->first_key);
  reply.integer(command->last_key);
  reply.integer(command->key_step);
  reply_words(call, category_words(*command));
  reply.array(0);  // tips
  reply.array(0);  // key specifications
  const auto children = subcommands(*command);
  reply.array(children.size());
  for (const Command& child : children) reply_command_info(call, &child);
}

void reply_command_docs(Call& call, const Command& command) {
  ReplyWriter& reply = call.reply;
  const auto children = subcommands(command);
  reply.bulk(command.name);
  reply.map(children.empty() ? 3 : 4);
  reply.bulk("summary");
  reply.bulk(command.summary);
  reply.bulk("since");
  reply.bulk(command.since);
  reply.bulk("group");
  reply.bulk(command.group);
  if (children.empty()) return;
  reply.bulk("subcommands");
  reply.map(children.size());
  for (const Command& child : children) reply_command_docs(call, child);
}

const Command* find_named(std::string_view name) {
  const auto bar = name.find('|');
  return bar == std::string_view::npos ? find_command(name)
                                       : find_command(name.substr(0, bar), name.substr(bar + 1));
}

std::size_t top_level_count() {
  std::size_t count = 0;
  for (const Command& command : commands()) count += !is_subcommand(command);
  return count;
}

void reply_all_info(Call& call) {
  call.reply.array(top_level_count());
  for (const Command& command : commands()) {
    if (!is_subcommand(command)) reply_command_info(call, &command);
  }
}

}  // namespace

void time_command(Call& call) {
  const std::int64_t now = call.server.now_us();
  call.reply.array(2);
  call.reply.bulk(fmt::format("{}", now / 1'000'000));
  call.reply.bulk(fmt::format("{}", now % 1'000'000));
}

// Blocks the event loop, which is what it is for; so it has to be allowed, as in Redis 7.
void debug_sleep_command(Call& call) {
  if (!call.server.config.debug_command)
    return call.reply.error(
        "ERR DEBUG command not allowed: start the server with --enable-debug-command");
  constexpr long double kLongest = 3600;
  const auto seconds = parse_float(call.argv[2]);
  if (!seconds || *seconds < 0 || *seconds > kLongest) return call.reply.error(kNotFloat);
  std::this_thread::sleep_for(std::chrono::duration<double>(static_cast<double>(*seconds)));
  call.reply.simple("OK");
}

void shutdown_command(Call& call) {
  bool save = false, no_save = false, now = false, force = false, abort = false;
  for (const std::string_view word : call.argv.subspan(1)) {
    if (is_word(word, "save"))
      save = true;
    else if (is_word(word, "nosave"))
      no_save = true;
    else if (is_word(word, "now"))
      now = true;
    else if (is_word(word, "force"))
      force = true;
    else if (is_word(word, "abort"))
      abort = true;
    else
      return call.reply.error(kSyntaxError);
  }
  if ((save && no_save) || (abort && (save || no_save || now || force))) {
    return call.reply.error(kSyntaxError);
  }
  if (abort) return call.reply.error("ERR No shutdown in progress.");
  // There is nothing to save, with or without SAVE; the client sees the connection end.
  if (call.server.request_shutdown) call.server.request_shutdown(now);
}

void command_command(Call& call) { reply_all_info(call); }

void command_count_command(Call& call) {
  call.reply.integer(static_cast<std::int64_t>(top_level_count()));
}

void command_info_command(Call& call) {
  if (call.argv.size() == 2) return reply_all_info(call);
  call.reply.array(call.argv.size() - 2);
  for (const std::string_view name : call.argv.subspan(2)) {
    reply_command_info(call, find_named(name));
  }
}

void command_docs_command(Call& call) {
  std::vector<const Command*> chosen;
  for (const std::string_view name : call.argv.subspan(2)) {
    if (const Command* command = find_named(name)) chosen.push_back(command);
  }
  if (call.argv.size() == 2) {
    for (const Command& command : commands()) {
      if (!is_subcommand(command)) chosen.push_back(&command);
    }
  }
  call.reply.map(chosen.size());
  for (const Command* command : chosen) reply_command_docs(call, *command);
}

void command_list_command(Call& call) {
  std::vector<std::string_view> names;
  const bool filtered = call.argv.size() == 5 && is_word(call.argv[2], "filterby");
  if (call.argv.size() != 2 && !filtered) return call.reply.error(kSyntaxError);
  const std::string_view kind = filtered ? call.argv[3] : "";
  const std::string_view value = filtered ? call.argv[4] : "";
  if (filtered && !is_word(kind, "pattern") && !is_word(kind, "aclcat") &&
      !is_word(kind, "module")) {
    return call.reply.error(kSyntaxError);
  }
  for (const Command& command : commands()) {
    bool match = !filtered && !is_subcommand(command);
    if (is_word(kind, "pattern")) match = glob_match(value, command.name, true);
    if (is_word(kind, "aclcat")) {
      for (const std::string& word : category_words(command)) {
        match |= is_word(value, std::string_view(word).substr(1));
      }
    }
    if (match) names.push_back(command.name);
  }
  call.reply.array(names.size());
  for (const std::string_view name : names) call.reply.bulk(name);
}

void command_help_command(Call& call) {
  static constexpr std::string_view kLines[] = {
      "(no subcommand)",
      "    What INFO says, of every command.",
      "COUNT",
      "    How many commands there are.",
      "LIST [FILTERBY (MODULE <name>|ACLCAT <category>|PATTERN <pattern>)]",
      "    Their names.",
      "INFO [<command> ...]",
      "    Arity, flags and key positions of these commands, or of all.",
      "DOCS [<command> ...]",
      "    Summary, version and group of these commands, or of all.",
  };
  reply_help(call, kLines);
}

}  // namespace kv
