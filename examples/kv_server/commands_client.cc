// SPDX-License-Identifier: BSD-3-Clause
// CLIENT.

#include <fmt/format.h>

#include <map>
#include <optional>

#include "divided.h"

namespace kv {
namespace {

std::string_view c_string(std::string_view text) { return text.substr(0, text.find('\0')); }

/// False after the error was replied. Every client here is a normal one.
bool parse_type(Call& call, std::string_view word, bool& normal) {
  static constexpr std::string_view kOthers[] = {"master", "slave", "replica", "pubsub"};
  normal = is_word(word, "normal");
  if (normal) return true;
  for (const std::string_view other : kOthers) {
    if (is_word(word, other)) return true;
  }
  call.reply.error(fmt::format("ERR Unknown client type '{}'", c_string(word)));
  return false;
}

struct KillFilter {
  std::optional<std::uint64_t> id;
  std::optional<std::string> address, local;
  bool normal = true, skip_me = true;
  std::uint64_t me = 0;  ///< the requester's id

  bool matches(const Session& session) const {
    return normal && !session.killed() && (!id || *id == session.id()) &&
           (!address || *address == session.info().peer) &&
           (!local || *local == session.info().local) && !(skip_me && session.id() == me);
  }
};

bool parse_kill_filter(Call& call, KillFilter& filter) {
  for (std::size_t i = 2; i < call.argv.size(); i += 2) {
    if (i + 1 >= call.argv.size()) {
      call.reply.error(kSyntaxError);
      return false;
    }
    const std::string_view word = call.argv[i], value = call.argv[i + 1];
    if (is_word(word, "id")) {
      const auto id = parse_integer(value);
      if (!id || *id < 1) {
        call.reply.error("ERR client-id should be greater than 0");
        return false;
      }
      filter.id = static_cast<std::uint64_t>(*id);
    } else if (is_word(word, "type")) {
      if (!parse_type(call, value, filter.normal)) return false;
    } else if (is_word(word, "addr")) {
      filter.address = value;
    } else if (is_word(word, "laddr")) {
      filter.local = value;
    } else if (is_word(word, "user")) {
      if (value != "default") {
        call.reply.error(fmt::format("ERR No such user '{}'", c_string(value)));
        return false;
      }
    } else if (is_word(word, "skipme") && (is_word(value, "yes") || is_word(value, "no"))) {
      filter.skip_me = is_word(value, "yes");
    } else {
      call.reply.error(kSyntaxError);
      return false;
    }
  }
  return true;
}

/// False after the error was replied. `address_only` if it is the old form, CLIENT KILL address.
bool parse_kill(Call& call, KillFilter& filter, bool& address_only) {
  filter.me = call.session.id();
  address_only = call.argv.size() == 3;
  if (!address_only) return parse_kill_filter(call, filter);
  filter.address = call.argv[2];
  filter.skip_me = false;
  return true;
}

std::int64_t kill_matching(Call& call, const KillFilter& filter) {
  std::int64_t killed = 0;
  for (const auto& [id, session] : call.server.sessions) {
    if (!filter.matches(*session)) continue;
    session->close_by_command(call.session);
    ++killed;
  }
  return killed;
}

struct Killed {
  std::int64_t others = 0;
  bool requester = false;
};

/// The requester is left: its reply goes out first.
Killed kill_others(Server& server, const KillFilter& filter) {
  Killed killed;
  for (const auto& [id, session] : server.sessions) {
    if (!filter.matches(*session)) continue;
    if (id == filter.me) {
      killed.requester = true;
    } else {
      session->kill();
      ++killed.others;
    }
  }
  return killed;
}

void reply_killed(Call& call, std::int64_t killed, bool address_only) {
  if (!address_only) return call.reply.integer(killed);
  if (killed == 0) return call.reply.error("ERR No such client");
  call.reply.ok();
}

/// What CLIENT LIST asks for: all, or those with an id, in that order.
struct ListFilter {
  bool normal = true;
  std::optional<std::vector<std::uint64_t>> ids;
};

/// False after the error was replied.
bool parse_list(Call& call, ListFilter& filter) {
  if (call.argv.size() == 4 && is_word(call.argv[2], "type")) {
    return parse_type(call, call.argv[3], filter.normal);
  }
  if (call.argv.size() > 3 && is_word(call.argv[2], "id")) {
    filter.ids.emplace();
    for (const std::string_view argument : call.argv.subspan(3)) {
      const auto id = integer_argument(call, argument, "ERR Invalid client ID");
      if (!id) return false;
      filter.ids->push_back(static_cast<std::uint64_t>(*id));
    }
    return true;
  }
  if (call.argv.size() == 2) return true;
  call.reply.error(kSyntaxError);
  return false;
}

/// `add(id, session)` for those of one loop.
template <class Add>
void each_listed(const Server& server, const ListFilter& filter, Add add) {
  const auto unless_killed = [&add](std::uint64_t id, const Session& session) {
    if (!session.killed()) add(id, session);
  };
  if (filter.ids) {
    for (const std::uint64_t id : *filter.ids) {
      const auto found = server.sessions.find(id);
      if (found != server.sessions.end()) unless_killed(id, *found->second);
    }
  } else if (filter.normal) {
    for (const auto& [id, session] : server.sessions) unless_killed(id, *session);
  }
}

using Lines = std::map<std::uint64_t, std::string>;  ///< by client

std::string join_lines(const Lines& lines, const ListFilter& filter) {
  std::string text;
  if (filter.ids) {
    for (const std::uint64_t id : *filter.ids) {
      const auto found = lines.find(id);
      if (found != lines.end()) text += found->second;
    }
  } else {
    for (const auto& [id, line] : lines) text += line;
  }
  return text;
}

}  // namespace

bool valid_client_name(std::string_view name) {
  for (const char c : name) {
    if (c < '!' || c > '~') return false;
  }
  return true;
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

void client_setinfo_command(Call& call) {
  const std::string_view option = call.argv[2], value = call.argv[3];
  const bool name = is_word(option, "lib-name");
  if (!name && !is_word(option, "lib-ver")) {
    return call.reply.error(fmt::format("ERR Unrecognized option '{}'", c_string(option)));
  }
  if (!valid_client_name(value)) {
    return call.reply.error(
        fmt::format("ERR {} cannot contain spaces, newlines or special characters.",
                    name ? "lib-name" : "lib-ver"));
  }
  if (name)
    call.session.set_library(value);
  else
    call.session.set_library_version(value);
  call.reply.ok();
}

void client_list_command(Call& call) {
  ListFilter filter;
  if (!parse_list(call, filter)) return;
  std::string text;
  each_listed(call.server, filter, [&text](std::uint64_t, const Session& session) {
    text += session.describe() + '\n';
  });
  call.reply.verbatim(text);
}

void client_list_divided(Call& call) {
  ListFilter filter;
  if (!parse_list(call, filter)) return;
  ask_loops<Lines>(
      call,
      [filter](Server& server) {
        Lines lines;
        each_listed(server, filter, [&lines](std::uint64_t id, const Session& session) {
          lines.emplace(id, session.describe() + '\n');
        });
        return lines;
      },
      [filter](Call& resumed, std::vector<Lines>& answers) {
        Lines all;
        for (Lines& lines : answers) all.merge(lines);
        resumed.reply.verbatim(join_lines(all, filter));
      });
}

void client_info_command(Call& call) {
  call.reply.verbatim(call.session.describe_with_facts() + '\n');
}

void client_kill_command(Call& call) {
  KillFilter filter;
  bool address_only = false;
  if (!parse_kill(call, filter, address_only)) return;
  reply_killed(call, kill_matching(call, filter), address_only);
}

void client_kill_divided(Call& call) {
  KillFilter filter;
  bool address_only = false;
  if (!parse_kill(call, filter, address_only)) return;
  ask_loops<Killed>(
      call, [filter](Server& server) { return kill_others(server, filter); },
      [address_only](Call& resumed, std::vector<Killed>& answers) {
        std::int64_t killed = 0;
        for (const Killed& answer : answers) {
          killed += answer.others + (answer.requester ? 1 : 0);
          if (answer.requester) resumed.session.close_after_reply();
        }
        reply_killed(resumed, killed, address_only);
      });
}

void client_reply_command(Call& call) {
  if (is_word(call.argv[2], "on")) {
    call.session.set_replies(true);
    call.reply.ok();
  } else if (is_word(call.argv[2], "off")) {
    call.session.set_replies(false);
  } else if (is_word(call.argv[2], "skip")) {
    call.session.skip_next_reply();
  } else {
    call.reply.error(kSyntaxError);
  }
}

/// NO-EVICT and NO-TOUCH: nothing is evicted and no access time is kept, so both are true anyway.
void client_switch_command(Call& call) {
  if (is_word(call.argv[2], "on") || is_word(call.argv[2], "off"))
    call.reply.ok();
  else
    call.reply.error(kSyntaxError);
}

void client_help_command(Call& call) {
  static constexpr std::string_view kLines[] = {
      "GETNAME",
      "    The name that SETNAME gave this connection.",
      "ID",
      "    The number of this connection.",
      "INFO",
      "    The line of LIST that is about this connection, and what its transport",
      "    says of it.",
      "KILL <address>",
      "    Hang up on the client that LIST shows with this addr.",
      "KILL <option> <value> [<option> <value> [...]]",
      "    Hang up on every client that all of these fit:",
      "    ADDR <address>, LADDR <address>, ID <number>, USER <name>,",
      "    TYPE NORMAL, or another type, which nobody here has;",
      "    SKIPME NO lets it be this connection too.",
      "LIST [TYPE <type> | ID <number> ...]",
      "    A line for each client, its transport included.",
      "NO-EVICT (ON|OFF)",
      "NO-TOUCH (ON|OFF)",
      "    Taken from clients that send it; nothing changes.",
      "REPLY (ON|OFF|SKIP)",
      "    Whether this connection gets replies; SKIP leaves out the next one.",
      "SETINFO (LIB-NAME|LIB-VER) <value>",
      "    What library the client uses, for LIST.",
      "SETNAME <name>",
      "    Call this connection <name>, for LIST.",
  };
  reply_help(call, kLines);
}

}  // namespace kv
