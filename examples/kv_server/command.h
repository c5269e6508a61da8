// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The commands: the table, a request while it runs, and what the handlers share.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reply_writer.h"
#include "server_state.h"
#include "session.h"

namespace kv {

using Arguments = std::span<const std::string_view>;

/// A request while it runs. Arguments are views into the session's input.
struct Call {
  Server& server;
  Session& session;
  const Command& command;
  Arguments argv;
  ReplyWriter& reply;
  Arriving& arrived;  ///< holds a large argument's bytes
  // For a command with kOneKey: its key, and the shard of that key, which is locked.
  Key key{};
  Shard* shard = nullptr;

  Entry* find() { return shard->find(key); }
  /// Returns the key's entry and counts a hit, or returns null and counts a miss.
  Entry* read() { return read(*shard, key); }
  Entry* read(Shard& from, const Key& which) {
    Entry* entry = from.find(which);
    ++(entry != nullptr ? server.statistics.keyspace_hits : server.statistics.keyspace_misses);
    return entry;
  }
  /// Does what Shard::set() does, but a value that arrived in a block of its own stays in that
  /// block.
  void store(Shard& to, Entry* existing, const Key& which, std::string_view value) {
    if (arrived.active()) [[unlikely]] {
      if (Entry** block = arrived.block_of(which.text, value))
        return static_cast<void>(to.adopt(existing, which, *block));
    }
    to.set(existing, which, value);
  }
};
using Handler = void (*)(Call&);

enum CommandFlag : std::uint32_t {
  kDenyOom = 1 << 0,  ///< refused while the memory used is above maxmemory
  kNoAuth = 1 << 1,   ///< allowed before AUTH
  kOneKey = 1 << 2,   ///< concerns the key that is its first argument
};

struct Command {
  std::string_view name;  ///< lower case; "client|list" for a subcommand
  int arity;              ///< as in Redis: counts the name; negative: at least that many
  std::uint32_t flags;
  Handler handler;        ///< null for a command that only has subcommands
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
/// Redis's reply to a command or subcommand that does not exist.
std::string unknown_command(Arguments argv);
std::string wrong_arity(const Command& command);  ///< the error, as text
/// The argument as a number; if it is none, replies `error` and returns nullopt.
std::optional<std::int64_t> integer_argument(Call& call, std::string_view text,
                                             std::string_view error = kNotInteger);
/// A text up to its first NUL: error texts are C strings in Redis.
inline std::string_view c_string(std::string_view text) { return text.substr(0, text.find('\0')); }

std::span<const Command> data_commands();        // commands_data.cc
std::span<const Command> connection_commands();  // commands_connection.cc
std::span<const Command> server_commands();      // commands_server.cc
void info_command(Call& call);                   // info.cc

/// Sets a configuration parameter as CONFIG SET does. Returns the reason of a refusal, or "".
std::string configure(Config& config, std::string_view name, std::string_view value);

/// Asks every loop, and writes the reply once all have answered, if the session still exists then.
template <class Answer>
void ask_loops(Call& call, std::function<Answer(Server&)> question,
               std::function<void(Call&, std::vector<Answer>&)> reply) {
  Server& server = call.server;
  call.session.begin_wait();
  try {
    server.together.ask<Answer>(
        server, std::move(question),
        [&server, id = call.session.id(), reply = std::move(reply)](std::vector<Answer>& answers) {
          const auto found = server.sessions.find(id);
          if (found == server.sessions.end() || found->second->killed()) return;
          found->second->finish_wait([&](Call& resumed) { reply(resumed, answers); });
        });
  } catch (...) {  // no loop was asked yet
    call.session.cancel_wait();
    throw;
  }
}

}  // namespace kv
