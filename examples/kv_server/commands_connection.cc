// SPDX-License-Identifier: BSD-3-Clause
// Commands on the connection itself: PING to QUIT, and CLIENT.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "command.h"

namespace kv {
namespace {

using Lines = std::map<std::uint64_t, std::string>;  ///< of CLIENT LIST, by client

Lines list_clients(const Server& server) {
  Lines lines;
  for (const auto& [id, session] : server.sessions) {
    if (!session->killed()) lines.emplace(id, session->describe() + '\n');
  }
  return lines;
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
  for (std::size_t i = 2; i < call.argv.size(); ++i) {
    const std::size_t more = call.argv.size() - 1 - i;
    if (is_word(call.argv[i], "auth") && more >= 2) {
      if (!call.session.log_in(call.argv[i + 1], call.argv[i + 2])) {
        return call.reply.error("WRONGPASS invalid username-password pair or user is disabled.");
      }
      i += 2;
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

void quit_command(Call& call) {
  call.reply.ok();
  call.session.close_after_reply();
}

void client_id_command(Call& call) {
  call.reply.integer(static_cast<std::int64_t>(call.session.id()));
}

/// Client libraries send this when they connect. Nothing is kept.
void client_setinfo_command(Call& call) { call.reply.ok(); }

void client_list_command(Call& call) {
  ask_loops<Lines>(call, list_clients, [](Call& resumed, std::vector<Lines>& answers) {
    Lines all;
    for (Lines& lines : answers) all.merge(lines);
    std::string text;
    for (const auto& [id, line] : all) text += line;
    resumed.reply.verbatim(text);
  });
}

/// CLIENT KILL ID number. The requester is left out, as in Redis.
void client_kill_command(Call& call) {
  if (!is_word(call.argv[2], "id")) return call.reply.error(kSyntaxError);
  const auto id = parse_integer(call.argv[3]);
  if (!id || *id <= 0) return call.reply.error("ERR client-id should be greater than 0");
  ask_loops<std::int64_t>(
      call,
      [id = static_cast<std::uint64_t>(*id), me = call.session.id()](Server& server) {
        const auto found = server.sessions.find(id);
        if (id == me || found == server.sessions.end() || found->second->killed()) return 0;
        found->second->kill();
        return 1;
      },
      [](Call& resumed, std::vector<std::int64_t>& killed) {
        resumed.reply.integer(std::accumulate(killed.begin(), killed.end(), std::int64_t{0}));
      });
}

/// CLIENT MOVE id loop: our own, not Redis's. Replies OK once the client has left its loop; from
/// then on commands about all clients find it on the other one.
void client_move_command(Call& call) {
  const auto id = parse_integer(call.argv[2]);
  if (!id || *id <= 0) return call.reply.error("ERR client-id should be greater than 0");
  const auto to = integer_argument(call, call.argv[3]);
  if (!to) return;
  const std::size_t loops = call.server.together.loops();
  if (*to < 0 || static_cast<std::size_t>(*to) >= loops)
    return call.reply.error(
        fmt::format("ERR there is no loop {}: the loops are 0 to {}", *to, loops - 1));
  if (static_cast<std::uint64_t>(*id) == call.session.id())
    return call.reply.error("ERR a client cannot move itself: let another client ask");
  using Answer = std::optional<std::string>;  // of the client's loop: "" or an error
  ask_loops<Answer>(
      call,
      [id = static_cast<std::uint64_t>(*id), to = static_cast<std::size_t>(*to)](Server& server) {
        const auto found = server.sessions.find(id);
        if (found == server.sessions.end() || found->second->killed()) return Answer();
        if (server.loop == to || !server.move_session) return Answer("");
        return Answer(server.move_session(*found->second, to));
      },
      [](Call& resumed, std::vector<Answer>& answers) {
        const auto its = std::find_if(answers.begin(), answers.end(),
                                      [](const Answer& each) { return each.has_value(); });
        if (its == answers.end()) return resumed.reply.error("ERR No such client");
        if (!(*its)->empty()) return resumed.reply.error(**its);
        resumed.reply.ok();
      });
}

void client_info_command(Call& call) { call.reply.verbatim(call.session.describe(true) + '\n'); }

constexpr Command kConnectionTable[] = {
    {"ping", -1, 0, ping_command},
    {"echo", 2, 0, echo_command},
    {"hello", -1, kNoAuth, hello_command},
    {"auth", -2, kNoAuth, auth_command},
    {"quit", -1, kNoAuth, quit_command},
    {"client", -2, 0, nullptr},
    {"client|id", 2, 0, client_id_command},
    {"client|setinfo", 4, 0, client_setinfo_command},
    {"client|list", 2, 0, client_list_command},
    {"client|info", 2, 0, client_info_command},
    {"client|kill", 4, 0, client_kill_command},
    {"client|move", 4, 0, client_move_command},
};

}  // namespace

std::span<const Command> connection_commands() { return kConnectionTable; }

}  // namespace kv
