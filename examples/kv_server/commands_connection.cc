// SPDX-License-Identifier: BSD-3-Clause
// Commands on the connection itself: PING to RESET, and CLIENT.

#include <fmt/format.h>

#include <map>
#include <numeric>
#include <optional>

#include "divided.h"

namespace kv {
namespace {

bool valid_client_name(std::string_view name) {
  for (const char c : name) {
    if (c < '!' || c > '~') return false;
  }
  return true;
}

using Lines = std::map<std::uint64_t, std::string>;  ///< of CLIENT LIST, by client

Lines list_clients(const Server& server) {
  Lines lines;
  for (const auto& [id, session] : server.sessions) {
    if (!session->killed()) lines.emplace(id, session->describe() + '\n');
  }
  return lines;
}

void reply_lines(Call& call, const Lines& lines) {
  std::string text;
  for (const auto& [id, line] : lines) text += line;
  call.reply.verbatim(text);
}

void ping_command(Call& call) {
  if (call.argv.size() > 2) return call.reply.error(wrong_arity(call.command));
  if (call.argv.size() == 2)
    call.reply.bulk(call.argv[1]);
  else
    call.reply.simple("PONG");
}

void echo_command(Call& call) { call.reply.bulk(call.argv[1]); }

void auth_command(Call& call) {
  if (call.argv.size() > 3) return call.reply.error(kSyntaxError);
  if (call.argv.size() == 2 && !call.server.password_needed()) {
    return call.reply.error(
        "ERR AUTH <password> called without any password configured for the default user. "
        "Are you sure your configuration is correct?");
  }
  const std::string_view user = call.argv.size() == 3 ? call.argv[1] : "default";
  if (!call.session.log_in(user, call.argv.back())) {
    return call.reply.error("WRONGPASS invalid username-password pair or user is disabled.");
  }
  call.reply.ok();
}

void hello_command(Call& call) {
  std::int64_t version = call.session.resp_version();
  if (call.argv.size() > 1) {
    const auto asked = integer_argument(call, call.argv[1],
                                        "ERR Protocol version is not an integer or out of range");
    if (!asked) return;
    version = *asked;
    if (version < 2 || version > 3) return call.reply.error("NOPROTO unsupported protocol version");
  }
  std::optional<std::string_view> name;
  for (std::size_t i = 2; i < call.argv.size(); ++i) {
    const std::size_t more = call.argv.size() - 1 - i;
    if (is_word(call.argv[i], "auth") && more >= 2) {
      if (!call.session.log_in(call.argv[i + 1], call.argv[i + 2])) {
        return call.reply.error("WRONGPASS invalid username-password pair or user is disabled.");
      }
      i += 2;
    } else if (is_word(call.argv[i], "setname") && more >= 1) {
      name = call.argv[++i];
      if (!valid_client_name(*name)) {
        return call.reply.error(kBadName);
      }
    } else {
      return call.reply.error(
          fmt::format("ERR Syntax error in HELLO option '{}'", c_string(call.argv[i])));
    }
  }
  if (!call.session.authenticated()) {
    return call.reply.error(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO "
        "<proto> AUTH <user> <pass> option can be used to authenticate the client and select the "
        "RESP protocol version at the same time");
  }
  if (name) call.session.set_name(*name);
  call.session.set_resp_version(static_cast<int>(version));
  ReplyWriter& reply = call.reply;
  reply.map(7);
  reply.bulk("server");
  reply.bulk("redis");  // clients compare this name; INFO has the name kv-server
  reply.bulk("version");
  reply.bulk(kRedisVersion);
  reply.bulk("proto");
  reply.integer(version);
  reply.bulk("id");
  reply.integer(static_cast<std::int64_t>(call.session.id()));
  reply.bulk("mode");
  reply.bulk("standalone");
  reply.bulk("role");
  reply.bulk("master");
  reply.bulk("modules");
  reply.array(0);
}

void select_command(Call& call) {
  const auto index = integer_argument(call, call.argv[1]);
  if (!index) return;
  if (*index < INT32_MIN || *index > INT32_MAX) {
    return call.reply.error(fmt::format("ERR value is out of range, value must between {} and {}",
                                        INT32_MIN, INT32_MAX));
  }
  if (!call.session.select(*index)) return call.reply.error("ERR DB index is out of range");
  call.reply.ok();
}

void quit_command(Call& call) {
  call.reply.ok();
  call.session.close_after_reply();
}

void reset_command(Call& call) {
  call.session.reset();
  call.reply.simple("RESET");
}

void client_id_command(Call& call) {
  call.reply.integer(static_cast<std::int64_t>(call.session.id()));
}

void client_getname_command(Call& call) {
  if (call.session.name().empty())
    call.reply.null();
  else
    call.reply.bulk(call.session.name());
}

void client_setname_command(Call& call) {
  if (!valid_client_name(call.argv[2])) return call.reply.error(kBadName);
  call.session.set_name(call.argv[2]);
  call.reply.ok();
}

/// Client libraries send this when they connect. The values are checked, and are not kept.
void client_setinfo_command(Call& call) {
  const std::string_view option = call.argv[2];
  const bool name = is_word(option, "lib-name");
  if (!name && !is_word(option, "lib-ver")) {
    return call.reply.error(fmt::format("ERR Unrecognized option '{}'", c_string(option)));
  }
  if (!valid_client_name(call.argv[3])) {
    return call.reply.error(
        fmt::format("ERR {} cannot contain spaces, newlines or special characters.",
                    name ? "lib-name" : "lib-ver"));
  }
  call.reply.ok();
}

void client_list_command(Call& call) { reply_lines(call, list_clients(call.server)); }

void client_list_divided(Call& call) {
  ask_loops<Lines>(call, list_clients, [](Call& resumed, std::vector<Lines>& answers) {
    Lines all;
    for (Lines& lines : answers) all.merge(lines);
    reply_lines(resumed, all);
  });
}

/// The argument of CLIENT KILL ID; nullopt after replying an error.
std::optional<std::uint64_t> parse_kill(Call& call) {
  if (!is_word(call.argv[2], "id")) {
    call.reply.error(kSyntaxError);
    return std::nullopt;
  }
  const auto id = parse_integer(call.argv[3]);
  if (id && *id > 0) return static_cast<std::uint64_t>(*id);
  call.reply.error("ERR client-id should be greater than 0");
  return std::nullopt;
}

/// Returns the number of clients killed. `me`, the requester, is left out, as in Redis.
std::int64_t kill_client(const Server& server, std::uint64_t id, std::uint64_t me) {
  const auto found = server.sessions.find(id);
  if (id == me || found == server.sessions.end() || found->second->killed()) return 0;
  found->second->kill();
  return 1;
}

void client_kill_command(Call& call) {
  if (const auto id = parse_kill(call))
    call.reply.integer(kill_client(call.server, *id, call.session.id()));
}

void client_kill_divided(Call& call) {
  const auto id = parse_kill(call);
  if (!id) return;
  ask_loops<std::int64_t>(
      call,
      [id = *id, me = call.session.id()](Server& server) { return kill_client(server, id, me); },
      [](Call& resumed, std::vector<std::int64_t>& killed) {
        resumed.reply.integer(std::accumulate(killed.begin(), killed.end(), std::int64_t{0}));
      });
}

void client_info_command(Call& call) {
  call.reply.verbatim(call.session.describe_with_facts() + '\n');
}

/// NO-EVICT and NO-TOUCH: no client is evicted by key and no access time is kept, so both hold.
void client_switch_command(Call& call) {
  if (is_word(call.argv[2], "on") || is_word(call.argv[2], "off"))
    call.reply.ok();
  else
    call.reply.error(kSyntaxError);
}

constexpr Command kTable[] = {
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
    {"client|kill", 4, 0, client_kill_command, 0, 0, 0, client_kill_divided},
    {"client|no-evict", 3, 0, client_switch_command},
    {"client|no-touch", 3, 0, client_switch_command},
};

}  // namespace

std::span<const Command> connection_commands() { return kTable; }

}  // namespace kv
