// CLIENT.

#include <fmt/format.h>

#include "command.h"

namespace kv {
namespace {

constexpr std::string_view kBadName =
    "ERR Client names cannot contain spaces, newlines or special characters.";

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
  std::optional<std::string_view> address, local;
  bool normal = true, skip_me = true;

  bool matches(const Session& session, const Session& me) const {
    return normal && !session.killed() && (!id || *id == session.id()) &&
           (!address || *address == session.info().peer) &&
           (!local || *local == session.info().local) && !(skip_me && &session == &me);
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

std::int64_t kill_matching(Call& call, const KillFilter& filter) {
  std::int64_t killed = 0;
  for (const auto& [id, session] : call.server.sessions) {
    if (!filter.matches(*session, call.session)) continue;
    session->close_by_command(call.session);
    ++killed;
  }
  return killed;
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
  bool normal = true;
  std::string text;
  const auto add = [&text](const Session& session) {
    if (!session.killed()) text += session.describe() + '\n';
  };
  const auto& sessions = call.server.sessions;
  if (call.argv.size() == 4 && is_word(call.argv[2], "type")) {
    if (!parse_type(call, call.argv[3], normal)) return;
  } else if (call.argv.size() > 3 && is_word(call.argv[2], "id")) {
    for (const std::string_view argument : call.argv.subspan(3)) {
      const auto id = integer_argument(call, argument, "ERR Invalid client ID");
      if (!id) return;
      const auto found = sessions.find(static_cast<std::uint64_t>(*id));
      if (found != sessions.end()) add(*found->second);
    }
    return call.reply.verbatim(text);
  } else if (call.argv.size() != 2) {
    return call.reply.error(kSyntaxError);
  }
  for (const auto& [id, session] : sessions) {
    if (normal) add(*session);
  }
  call.reply.verbatim(text);
}

void client_info_command(Call& call) {
  call.reply.verbatim(call.session.describe_with_facts() + '\n');
}

void client_kill_command(Call& call) {
  KillFilter filter;
  if (call.argv.size() == 3) {  // the old form, CLIENT KILL address
    filter.address = call.argv[2];
    filter.skip_me = false;
    if (kill_matching(call, filter) == 0) return call.reply.error("ERR No such client");
    return call.reply.ok();
  }
  if (!parse_kill_filter(call, filter)) return;
  call.reply.integer(kill_matching(call, filter));
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
