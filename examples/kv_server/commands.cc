// SPDX-License-Identifier: BSD-3-Clause
// Looking commands up, and what many handlers share.

#include <fmt/format.h>

#include <array>

#include "command.h"

namespace kv {

// command_table.cc
std::span<const Command> command_table();
Handler divided_handler(std::string_view name);

namespace {

std::size_t name_hash(std::string_view name, std::size_t hash = 0) noexcept {
  for (const char c : name) hash = hash * 31 + (static_cast<unsigned char>(c) | 0x20u);
  return hash;
}

/// Open addressing over the table, built once.
class Index {
 public:
  Index() {
    for (const Command& row : command_table()) {
      Command& command = commands_.emplace_back(row);
      command.index = commands_.size() - 1;
      command.divided = divided_handler(row.name);
      const auto bar = row.name.find('|');
      if (bar != std::string_view::npos) {
        command.subcommand = true;
        for (Command& other : commands_) {
          if (other.name == row.name.substr(0, bar)) other.container = true;
        }
      }
    }
    for (const Command& command : commands_) {
      std::size_t slot = name_hash(command.name) % kSlots;
      while (slots_[slot] != nullptr) slot = (slot + 1) % kSlots;
      slots_[slot] = &command;
    }
  }
  std::span<const Command> all() const noexcept { return commands_; }

  const Command* find(std::string_view name) const noexcept {
    return probe(name_hash(name),
                 [name](const Command& command) { return equals_ignore_case(command.name, name); });
  }
  const Command* find(std::string_view name, std::string_view subcommand) const noexcept {
    const std::size_t hash = name_hash(subcommand, name_hash("|", name_hash(name)));
    return probe(hash, [&](const Command& command) {
      return command.name.size() == name.size() + 1 + subcommand.size() &&
             command.name[name.size()] == '|' &&
             equals_ignore_case(command.name.substr(0, name.size()), name) &&
             equals_ignore_case(command.own_name(), subcommand);
    });
  }

 private:
  static constexpr std::size_t kSlots = 512;
  template <class Match>
  const Command* probe(std::size_t hash, Match match) const noexcept {
    std::size_t slot = hash % kSlots;
    for (; slots_[slot] != nullptr; slot = (slot + 1) % kSlots) {
      if (match(*slots_[slot])) return slots_[slot];
    }
    return nullptr;
  }

  std::vector<Command> commands_;
  std::array<const Command*, kSlots> slots_{};
};

const Index& index() {
  static const Index instance;
  return instance;
}

/// Up to `most` bytes, and only to the first NUL: error texts are C strings in Redis.
std::string_view printable(std::string_view text, std::size_t most) {
  text = text.substr(0, most);
  return text.substr(0, text.find('\0'));
}

}  // namespace

std::span<const Command> commands() { return index().all(); }
std::size_t command_count() { return index().all().size(); }

std::span<const Command> subcommands(const Command& container) {
  const auto all = commands().subspan(container.index + 1);
  std::size_t count = 0;
  while (count < all.size() && all[count].name.find('|') != std::string_view::npos &&
         all[count].name.starts_with(container.name)) {
    ++count;
  }
  return all.first(container.container ? count : 0);
}

const Command* find_command(std::string_view name) { return index().find(name); }
const Command* find_command(std::string_view name, std::string_view subcommand) {
  return index().find(name, subcommand);
}

const Command* find_command(Arguments argv) {
  const Command* command = index().find(argv[0]);
  if (command == nullptr || command->subcommand) return nullptr;  // not as "client|list"
  if (!command->container || argv.size() == 1) return command;
  return index().find(argv[0], argv[1]);
}

std::string unknown_command(Arguments argv) {
  const Command* container = index().find(argv[0]);
  if (container != nullptr && container->container && argv.size() > 1) {
    return fmt::format("ERR unknown subcommand '{}'. Try {} HELP.", printable(argv[1], 128),
                       to_upper(argv[0]));
  }
  std::string list;
  for (std::size_t i = 1; i < argv.size() && list.size() < 128; ++i) {
    list += fmt::format("'{}' ", printable(argv[i], 128 - list.size()));
  }
  return fmt::format("ERR unknown command '{}', with args beginning with: {}",
                     printable(argv[0], 128), list);
}

Entry* Call::store_arrived(Database& to, Entry* existing, std::string_view key,
                           std::string_view value, bool keep_expiry) {
  if (Entry** block = arrived.block_of(key, value)) return to.adopt(existing, *block, keep_expiry);
  return to.set_found(existing, key, value, keep_expiry);
}

std::string wrong_arity(const Command& command) {
  return fmt::format("ERR wrong number of arguments for '{}' command", command.name);
}

void wrong_arity(ReplyWriter& reply, const Command& command) { reply.error(wrong_arity(command)); }

void reply_invalid_expiry(Call& call) {
  call.reply.error(fmt::format("ERR invalid expire time in '{}' command", call.command.name));
}

std::optional<std::int64_t> integer_argument(Call& call, std::string_view text,
                                             std::string_view error) {
  const auto value = parse_integer(text);
  if (!value) call.reply.error(error);
  return value;
}

void reply_help(Call& call, std::span<const std::string_view> lines) {
  const std::string_view name = call.command.name;
  call.reply.array(lines.size() + 3);
  call.reply.simple(
      fmt::format("{} takes one of these subcommands:", to_upper(name.substr(0, name.find('|')))));
  for (const std::string_view line : lines) call.reply.simple(line);
  call.reply.simple("HELP");
  call.reply.simple("    These lines.");
}

}  // namespace kv
