// SPDX-License-Identifier: BSD-3-Clause
// The lookup of commands, and what several handlers share.

#include <fmt/format.h>

#include "command.h"

namespace kv {
namespace {

std::vector<Command> make_table() {
  std::vector<Command> all;
  for (const auto part : {data_commands(), connection_commands(), server_commands()}) {
    for (const Command& row : part) {
      Command& command = all.emplace_back(row);
      command.index = all.size() - 1;
      command.subcommand = row.name.find('|') != std::string_view::npos;
    }
  }
  return all;
}

const Command* find(std::string_view name) noexcept {
  for (const Command& command : commands()) {
    if (is_word(name, command.name)) return &command;
  }
  return nullptr;
}

}  // namespace

std::span<const Command> commands() {
  static const std::vector<Command> kAll = make_table();
  return kAll;
}
std::size_t command_count() { return commands().size(); }

const Command* find_command(Arguments argv) {
  const Command* command = find(argv[0]);
  if (command == nullptr || command->subcommand) return nullptr;  // not by the name "client|list"
  if (command->handler != nullptr || argv.size() == 1) return command;
  constexpr std::size_t kLongest = 32;  // characters of a subcommand
  if (argv[1].size() > kLongest) return nullptr;
  return find(std::string(command->name).append("|").append(argv[1]));
}

std::string unknown_command(Arguments argv) {
  constexpr std::size_t kMost = 128;  // characters of a name, and of the arguments together
  const Command* container = find(argv[0]);
  if (container != nullptr && container->handler == nullptr && argv.size() > 1) {
    return fmt::format("ERR unknown subcommand '{}'.", c_string(argv[1].substr(0, kMost)));
  }
  std::string list;
  for (std::size_t i = 1; i < argv.size() && list.size() < kMost; ++i) {
    list += fmt::format("'{}' ", c_string(argv[i].substr(0, kMost - list.size())));
  }
  return fmt::format("ERR unknown command '{}', with args beginning with: {}",
                     c_string(argv[0].substr(0, kMost)), list);
}

std::string wrong_arity(const Command& command) {
  return fmt::format("ERR wrong number of arguments for '{}' command", command.name);
}

std::optional<std::int64_t> integer_argument(Call& call, std::string_view text,
                                             std::string_view error) {
  const auto value = parse_integer(text);
  if (!value) call.reply.error(error);
  return value;
}

}  // namespace kv
