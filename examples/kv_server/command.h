// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The command table: what COMMAND tells clients, and what to call.

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
  Arriving& arrived;  ///< has an argument's bytes, if it was large

  /// A key that is there, counted as a hit, or null, counted as a miss.
  Entry* read(std::string_view key) { return read(*db, key); }
  Entry* read(Database& from, std::string_view key) {
    Entry* entry = from.find(key, now_ms);
    ++(entry != nullptr ? server.statistics.keyspace_hits : server.statistics.keyspace_misses);
    return entry;
  }
  /// Database::set_found(); a value that came in a block of its own stays there.
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
  kWrite = 1 << 0,
  kReadOnly = 1 << 1,
  kDenyOom = 1 << 2,
  kAdmin = 1 << 3,
  kNoScript = 1 << 4,
  kLoading = 1 << 5,
  kStale = 1 << 6,
  kFast = 1 << 7,
  kNoAuth = 1 << 8,  ///< allowed before AUTH
  kDangerous = 1 << 9,
  kBlocking = 1 << 10,
  kAllowBusy = 1 << 11,
  kNoAsyncLoading = 1 << 12,
};

struct Command {
  std::string_view name;  ///< lower case; "client|list" for a subcommand
  int arity;              ///< as Redis: with the name; negative: at least
  std::uint32_t flags;
  Handler handler;         ///< null for a container that does nothing alone
  std::string_view group;  ///< "string", "generic", "connection", "server"
  std::string_view since;
  std::string_view summary;
  int first_key = 0, last_key = 0, key_step = 0;
  std::size_t index = 0;   ///< place in Statistics::commands; set once at start
  bool container = false;  ///< has subcommands
  bool subcommand = false;
  /// With several loops: what runs instead of a handler that is about more than one key's shard, or
  /// about other loops. Null: `handler`.
  Handler divided = nullptr;
  std::string_view own_name() const noexcept {
    const auto bar = name.find('|');
    return bar == std::string_view::npos ? name : name.substr(bar + 1);
  }
};

/// Every command, subcommands right after their container.
std::span<const Command> commands();
std::size_t command_count();
/// Subcommands of a container.
std::span<const Command> subcommands(const Command& container);
/// Any case. Null if there is none.
const Command* find_command(std::string_view name);
/// "client", or with "|" and the subcommand's name.
const Command* find_command(std::string_view name, std::string_view subcommand);
/// The command of a request, or null.
const Command* find_command(Arguments argv);

// Errors that many handlers share.
inline constexpr std::string_view kSyntaxError = "ERR syntax error";
inline constexpr std::string_view kNotInteger = "ERR value is not an integer or out of range";
inline constexpr std::string_view kNotFloat = "ERR value is not a valid float";
inline constexpr std::string_view kNoSuchKey = "ERR no such key";
inline constexpr std::string_view kBadName =
    "ERR Client names cannot contain spaces, newlines or special characters.";
void reply_invalid_expiry(Call& call);  ///< a time to live that cannot be
/// Redis's answer to a command, or a subcommand, that does not exist.
std::string unknown_command(Arguments argv);
std::string wrong_arity(const Command& command);  ///< the error, as text
void wrong_arity(ReplyWriter& reply, const Command& command);
/// The argument as a number; replies `error` and gives nothing if it is none.
std::optional<std::int64_t> integer_argument(Call& call, std::string_view text,
                                             std::string_view error = kNotInteger);
/// One lookup for option words: "ex" matches "EX".
inline bool is_word(std::string_view argument, std::string_view word) {
  return equals_ignore_case(argument, word);
}
void reply_help(Call& call, std::span<const std::string_view> lines);

// commands_strings.cc
void get_command(Call&);
void set_command(Call&);
void getset_command(Call&);
void getdel_command(Call&);
void getex_command(Call&);
void setnx_command(Call&);
void setex_command(Call&);
void psetex_command(Call&);
void mset_command(Call&);
void mset_divided(Call&);
void msetnx_command(Call&);
void msetnx_divided(Call&);
void mget_command(Call&);
void mget_divided(Call&);
void append_command(Call&);
void strlen_command(Call&);
void setrange_command(Call&);
void getrange_command(Call&);
// commands_numbers.cc
void incr_command(Call&);
void decr_command(Call&);
void incrby_command(Call&);
void decrby_command(Call&);
void incrbyfloat_command(Call&);
// commands_keys.cc
void del_command(Call&);
void del_divided(Call&);
void exists_command(Call&);
void exists_divided(Call&);
void type_command(Call&);
void keys_command(Call&);
void keys_divided(Call&);
void scan_command(Call&);
void scan_divided(Call&);
void randomkey_command(Call&);
void randomkey_divided(Call&);
void rename_command(Call&);
void rename_divided(Call&);
void renamenx_command(Call&);
void renamenx_divided(Call&);
void dbsize_command(Call&);
void dbsize_divided(Call&);
void flushall_command(Call&);
void flushall_divided(Call&);
void flushdb_command(Call&);
void flushdb_divided(Call&);
void expire_command(Call&);
void pexpire_command(Call&);
void expireat_command(Call&);
void pexpireat_command(Call&);
void ttl_command(Call&);
void pttl_command(Call&);
void expiretime_command(Call&);
void pexpiretime_command(Call&);
void persist_command(Call&);
// commands_connection.cc
void ping_command(Call&);
void echo_command(Call&);
void hello_command(Call&);
void auth_command(Call&);
void select_command(Call&);
void quit_command(Call&);
void reset_command(Call&);
// commands_client.cc
void client_id_command(Call&);
void client_getname_command(Call&);
void client_setname_command(Call&);
void client_setinfo_command(Call&);
void client_list_command(Call&);
void client_list_divided(Call&);
void client_info_command(Call&);
void client_kill_command(Call&);
void client_kill_divided(Call&);
void client_reply_command(Call&);
void client_switch_command(Call&);
void client_help_command(Call&);
bool valid_client_name(std::string_view name);
// commands_server.cc
void time_command(Call&);
void debug_sleep_command(Call&);
void shutdown_command(Call&);
void info_command(Call&);
void info_divided(Call&);
void command_command(Call&);
void command_count_command(Call&);
void command_docs_command(Call&);
void command_info_command(Call&);
void command_list_command(Call&);
void command_help_command(Call&);
// commands_config.cc
void config_get_command(Call&);
void config_get_divided(Call&);
void config_set_command(Call&);
void config_set_divided(Call&);
void config_resetstat_command(Call&);
void config_resetstat_divided(Call&);
void config_help_command(Call&);

/// Sets a configuration value as CONFIG SET does. Empty if it worked, else the reason.
std::string configure(Server& server, std::string_view name, std::string_view value);

}  // namespace kv
