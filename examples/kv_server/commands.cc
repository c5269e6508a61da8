// SPDX-License-Identifier: BSD-3-Clause
// The table of commands, its lookup, and what several handlers share. Arities are those of
// Redis 7.0 (7.2 for CLIENT SETINFO and CLIENT NO-TOUCH).

#include <fmt/format.h>

#include <array>

#include "command.h"

namespace kv {
namespace {

const Command kCommands[] = {
    {"get", 2, 0, get_command, 1, 1, 1},
    {"set", -3, kDenyOom, set_command, 1, 1, 1},
    {"mset", -3, kDenyOom, mset_command, 1, -1, 2, mset_divided},
    {"mget", -2, 0, mget_command, 1, -1, 1, mget_divided},
    {"append", 3, kDenyOom, append_command, 1, 1, 1},
    {"strlen", 2, 0, strlen_command, 1, 1, 1},
    {"setrange", 4, kDenyOom, setrange_command, 1, 1, 1},
    {"getrange", 4, 0, getrange_command, 1, 1, 1},
    {"incr", 2, kDenyOom, incr_command, 1, 1, 1},
    {"decr", 2, kDenyOom, decr_command, 1, 1, 1},
    {"incrby", 3, kDenyOom, incrby_command, 1, 1, 1},
    {"decrby", 3, kDenyOom, decrby_command, 1, 1, 1},
    {"del", -2, 0, del_command, 1, -1, 1, del_divided},
    {"exists", -2, 0, exists_command, 1, -1, 1, exists_divided},
    {"expire", 3, 0, expire_command, 1, 1, 1},
    {"pexpire", 3, 0, pexpire_command, 1, 1, 1},
    {"ttl", 2, 0, ttl_command, 1, 1, 1},
    {"pttl", 2, 0, pttl_command, 1, 1, 1},
    {"persist", 2, 0, persist_command, 1, 1, 1},
    {"dbsize", 1, 0, dbsize_command, 0, 0, 0, dbsize_divided},
    {"flushall", -1, 0, flushall_command, 0, 0, 0, flushall_divided},
    {"ping", -1, 0, ping_command},
    {"echo", 2, 0, echo_command},
    {"hello", -1, kNoAuth, hello_command},
    {"auth", -2, kNoAuth, auth_command},
    {"select", 2, 0, select_command},
    {"quit", -1, kNoAuth, quit_command},
    {"reset", 1, kNoAuth, reset_command},
    {"client", -2, 0, nullptr},
    {"client|id", 2, 0, client_id_command},
    {"client|getname", 2, 0, client_getname_command},
    {"client|setname", 3, 0, client_setname_command},
    {"client|setinfo", 4, 0, client_setinfo_command},
    {"client|list", 2, 0, client_list_command, 0, 0, 0, client_list_divided},
    {"client|info", 2, 0, client_info_command},
    {"client|no-evict", 3, 0, client_switch_command},
    {"client|no-touch", 3, 0, client_switch_command},
    {"command", -1, 0, command_command},
    {"config", -2, 0, nullptr},
    {"config|get", -3, 0, config_get_command, 0, 0, 0, config_get_divided},
    {"config|set", -4, 0, config_set_command, 0, 0, 0, config_set_divided},
    {"debug", -2, 0, nullptr},
    {"debug|sleep", 3, 0, debug_sleep_command},
    {"info", -1, 0, info_command, 0, 0, 0, info_divided},
    {"shutdown", -1, 0, shutdown_command},
};

std::size_t name_hash(std::string_view name, std::size_t hash = 0) noexcept {
  for (const char c : name) hash = hash * 31 + (static_cast<unsigned char>(c) | 0x20u);
  return hash;
}

/// A hash table with open addressing over kCommands, built once.
class Index {
 public:
  Index() : commands_(std::begin(kCommands), std::end(kCommands)) {
    for (Command& command : commands_) {
      command.index = static_cast<std::size_t>(&command - commands_.data());
      command.subcommand = command.name.find('|') != std::string_view::npos;
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
             equals_ignore_case(command.name.substr(name.size() + 1), subcommand);
    });
  }

 private:
  static constexpr std::size_t kSlots = 256;
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

}  // namespace

std::span<const Command> commands() { return index().all(); }
std::size_t command_count() { return index().all().size(); }

const Command* find_command(Arguments argv) {
  const Command* command = index().find(argv[0]);
  if (command == nullptr || command->subcommand) return nullptr;  // not as "client|list"
  if (command->handler != nullptr || argv.size() == 1) return command;
  return index().find(argv[0], argv[1]);
}

std::string unknown_command(Arguments argv) {
  constexpr std::size_t kMost = 128;  // characters of a name, and of the arguments together
  const Command* container = index().find(argv[0]);
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

Entry* Call::store_arrived(Database& to, Entry* existing, std::string_view key,
                           std::string_view value, bool keep_expiry) {
  if (Entry** block = arrived.block_of(key, value)) return to.adopt(existing, *block, keep_expiry);
  return to.set_found(existing, key, value, keep_expiry);
}

std::string wrong_arity(const Command& command) {
  return fmt::format("ERR wrong number of arguments for '{}' command", command.name);
}

void reply_invalid_expiry(Call& call) {
  call.reply.error(fmt::format("ERR invalid expire time in '{}' command", call.command.name));
}

std::optional<std::int64_t> integer_argument(Call& call, std::string_view text,
                                             std::string_view error) {
  const auto value = parse_integer(text);
  if (!value) call.reply.error(error);
  return value;
}

}  // namespace kv
