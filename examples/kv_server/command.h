// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The commands: the table, a request while it runs, and what the handlers share.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "reply_writer.h"
#include "server_state.h"
#include "session.h"

namespace kv {

using Arguments = std::span<const std::string_view>;

/// A request while it runs. Arguments are views into the session's input.
struct Call {
  Server& server;
  Session& session;
  Database* db;  ///< with several loops only for commands on one key: its shard's, locked
  const Command& command;
  Arguments argv;
  ReplyWriter& reply;
  std::int64_t now_ms;
  Arriving& arrived;  ///< holds a large argument's bytes

  /// The key's entry, counted as a hit, or null, counted as a miss.
  Entry* read(std::string_view key) { return read(*db, key); }
  Entry* read(Database& from, std::string_view key) {
    Entry* entry = from.find(key, now_ms);
    ++(entry != nullptr ? server.statistics.keyspace_hits : server.statistics.keyspace_misses);
    return entry;
  }
  /// Database::set_found(); a value that arrived in a block of its own stays in that block.
  Entry* store(Database& to, Entry* existing, std::string_view key, std::string_view value,
               bool keep_expiry = false) {
    if (arrived.active()) [[unlikely]]
      return store_arrived(to, existing, key, value, keep_expiry);
    return to.set_found(existing, key, value, keep_expiry);
  }
  Entry* store(Database& to, std::string_view key, std::string_view value) {
    if (arrived.active()) [[unlikely]]
      return store_arrived(to, to.find(key, now_ms), key, value, false);
    return to.set(key, value, now_ms);
  }

 private:
  Entry* store_arrived(Database& to, Entry* existing, std::string_view key, std::string_view value,
                       bool keep_expiry);
};
using Handler = void (*)(Call&);

enum CommandFlag : std::uint32_t {
  kDenyOom = 1 << 0,  ///< refused while the memory used is above maxmemory
  kNoAuth = 1 << 1,   ///< allowed before AUTH
};

struct Command {
  std::string_view name;  ///< lower case; "client|list" for a subcommand
  int arity;              ///< as in Redis: counts the name; negative: at least that many
  std::uint32_t flags;
  Handler handler;  ///< null for a command that only has subcommands
  int first_key = 0, last_key = 0, key_step = 0;
  /// With several loops: replaces `handler` where a command concerns the keys of more than one
  /// shard, or other loops. Null: `handler` is used.
  Handler divided = nullptr;
  std::size_t index = 0;  ///< index in Statistics::commands; set at start
  bool subcommand = false;
};

/// All commands, subcommands included.
std::span<const Command> commands();
std::size_t command_count();
/// The command of a request, in any case, or null.
const Command* find_command(Arguments argv);

// Errors that several handlers share.
inline constexpr std::string_view kSyntaxError = "ERR syntax error";
inline constexpr std::string_view kNotInteger = "ERR value is not an integer or out of range";
inline constexpr std::string_view kBadName =
    "ERR Client names cannot contain spaces, newlines or special characters.";
void reply_invalid_expiry(Call& call);  ///< for a time to live that is out of range
/// Redis's reply to a command or subcommand that does not exist.
std::string unknown_command(Arguments argv);
std::string wrong_arity(const Command& command);  ///< the error, as text
/// The argument as a number; if it is none, replies `error` and returns nullopt.
std::optional<std::int64_t> integer_argument(Call& call, std::string_view text,
                                             std::string_view error = kNotInteger);
/// Compares option words: "ex" matches "EX".
inline bool is_word(std::string_view argument, std::string_view word) {
  return equals_ignore_case(argument, word);
}
/// A text up to its first NUL: error texts are C strings in Redis.
inline std::string_view c_string(std::string_view text) { return text.substr(0, text.find('\0')); }

// The commands of commands_strings.cc and so on.
std::span<const Command> string_commands();
std::span<const Command> key_commands();
std::span<const Command> connection_commands();
std::span<const Command> server_commands();
std::span<const Command> info_commands();

/// Sets a configuration parameter as CONFIG SET does. Returns the reason of a refusal, or "".
std::string configure(Server& server, std::string_view name, std::string_view value);

}  // namespace kv
