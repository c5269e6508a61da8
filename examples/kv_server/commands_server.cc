// SPDX-License-Identifier: BSD-3-Clause
// COMMAND, CONFIG, DEBUG SLEEP and SHUTDOWN.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>

#include "divided.h"

namespace kv {
namespace {

// --- CONFIG --------------------------------------------------------------------------------------

/// The answer of a loop that has nothing to report.
struct Done {};

/// Returns the reason of a refusal, or "".
using Setter = std::string (*)(Server&, std::string_view);
using Getter = std::string (*)(const Server&);

std::string set_number(std::string_view text, std::int64_t& target, std::int64_t low,
                       std::int64_t high) {
  const auto value = parse_integer(text);
  if (!value) return "argument couldn't be parsed into an integer";
  if (*value < low || *value > high) {
    return fmt::format("argument must be between {} and {} inclusive", low, high);
  }
  target = *value;
  return {};
}

std::string set_memory(std::string_view text, std::uint64_t& target) {
  const auto value = parse_memory(text);
  if (!value) return "argument must be a memory value";
  target = *value;
  return {};
}

struct Parameter {
  std::string_view name;
  Getter get;
  Setter set;  ///< null: read-only
};

/// The server's own parameters; `save` and `appendonly` are what redis-benchmark asks for.
constexpr Parameter kParameters[] = {
    {"maxclients", [](const Server& s) { return fmt::format("{}", s.config.maxclients); },
     [](Server& s, std::string_view v) {
       return set_number(v, s.config.maxclients, 1, UINT32_MAX);
     }},
    {"maxmemory", [](const Server& s) { return fmt::format("{}", s.config.maxmemory); },
     [](Server& s, std::string_view v) { return set_memory(v, s.config.maxmemory); }},
    {"maxmemory-clients",
     [](const Server& s) { return fmt::format("{}", s.config.clients_memory_limit); },
     [](Server& s, std::string_view v) { return set_memory(v, s.config.clients_memory_limit); }},
    {"client-query-buffer-limit",
     [](const Server& s) { return fmt::format("{}", s.config.client_query_limit); },
     [](Server& s, std::string_view v) { return set_memory(v, s.config.client_query_limit); }},
    {"proto-max-bulk-len", [](const Server& s) { return fmt::format("{}", s.config.parser.bulk); },
     [](Server& s, std::string_view v) {
       std::uint64_t size = 0;
       std::string reason = set_memory(v, size);
       if (!reason.empty()) return reason;
       if (size < (1 << 20) || size > (std::uint64_t{2} << 30)) {
         return fmt::format("argument must be between {} and {} inclusive", 1 << 20,
                            std::uint64_t{2} << 30);
       }
       s.config.parser.bulk = static_cast<std::int64_t>(size);
       return std::string();
     }},
    {"requirepass", [](const Server& s) { return s.config.requirepass; },
     [](Server& s, std::string_view v) {
       s.config.requirepass = v;
       return std::string();
     }},
    {"timeout", [](const Server& s) { return fmt::format("{}", s.config.timeout_seconds); },
     [](Server& s, std::string_view v) {
       return set_number(v, s.config.timeout_seconds, 0, INT32_MAX);
     }},
    {"client-output-buffer-limit",
     [](const Server& s) { return fmt::format("{}", s.config.client_output_limit); },
     [](Server& s, std::string_view v) { return set_memory(v, s.config.client_output_limit); }},
    {"loglevel", [](const Server& s) { return s.config.loglevel; },
     [](Server& s, std::string_view v) {
       for (const std::string_view each : kLogLevels) {
         if (is_word(v, each)) {
           s.config.loglevel = each;
           return std::string();
         }
       }
       return fmt::format("argument(s) must be one of the following: {}",
                          fmt::join(kLogLevels, ", "));
     }},
    {"loops",
     [](const Server& s) {
       return fmt::format("{}", s.together != nullptr ? s.together->loops() : 1);
     },
     nullptr},
    {"event-loop", [](const Server& s) { return s.config.event_loop; }, nullptr},
    {"save", [](const Server&) { return std::string(); }, nullptr},
    {"appendonly", [](const Server&) { return std::string("no"); }, nullptr},
};

const Parameter* find_parameter(std::string_view name) {
  for (const Parameter& parameter : kParameters) {
    if (is_word(name, parameter.name)) return &parameter;
  }
  return nullptr;
}

/// Overwrites the password of a request: its memory is used again, and not freed.
void forget_password(Arguments argv) {
  for (std::size_t i = 2; i + 1 < argv.size(); i += 2) {
    if (!is_word(argv[i], "requirepass")) continue;
    explicit_bzero(const_cast<char*>(argv[i + 1].data()), argv[i + 1].size());
  }
}

/// Sets all parameters of the request or none. Returns false after replying the error.
bool set_parameters(Call& call) {
  if (call.argv.size() % 2 != 0) {
    call.reply.error(kSyntaxError);
    return false;
  }
  const Config before = call.server.config;
  for (std::size_t i = 2; i < call.argv.size(); i += 2) {
    const Parameter* parameter = find_parameter(call.argv[i]);
    if (parameter == nullptr) {
      call.server.config = before;
      call.reply.error(
          fmt::format("ERR Unknown option or number of arguments for CONFIG SET - '{}'",
                      c_string(call.argv[i])));
      return false;
    }
    std::string reason = parameter->set == nullptr ? "can't set immutable config" : "";
    for (std::size_t j = 2; j < i; j += 2) {
      if (is_word(call.argv[j], parameter->name)) reason = "duplicate parameter";
    }
    if (reason.empty()) reason = parameter->set(call.server, call.argv[i + 1]);
    if (reason.empty()) continue;
    call.server.config = before;
    call.reply.error(fmt::format("ERR CONFIG SET failed (possibly related to argument '{}') - {}",
                                 parameter->name, reason));
    return false;
  }
  return true;
}

/// The parameters of these names; a name that does not exist is left out, as in Redis.
void config_get_command(Call& call) {
  std::map<const Parameter*, std::string_view> found;  // with the name as the client wrote it
  for (const std::string_view name : call.argv.subspan(2)) {
    if (const Parameter* parameter = find_parameter(name)) found.emplace(parameter, name);
  }
  call.reply.map(found.size());
  for (const auto& [parameter, name] : found) {
    call.reply.bulk(name);
    call.reply.bulk(parameter->get(call.server));
  }
}

void config_set_command(Call& call) {
  if (set_parameters(call)) call.reply.ok();
  forget_password(call.argv);
}

/// Changes the shared copy, from which each loop then takes it: OK means that it holds everywhere.
void config_set_divided(Call& call) {
  Together& together = *call.server.together;
  bool done = false;
  {
    const std::lock_guard lock(together.config_mutex);
    call.server.config = together.config;
    done = set_parameters(call);
    together.config = call.server.config;
  }
  forget_password(call.argv);
  if (!done) return;
  ask_loops<Done>(
      call,
      [](Server& server) {
        server.adopt_config();
        return Done();
      },
      [](Call& resumed, std::vector<Done>&) { resumed.reply.ok(); });
}

void config_get_divided(Call& call) {
  const std::lock_guard lock(call.server.together->config_mutex);
  config_get_command(call);
}

// --- the rest ------------------------------------------------------------------------------------

/// COUNT gives the number of commands. What else clients ask for, such as redis-cli's COMMAND DOCS,
/// gets an empty array.
void command_command(Call& call) {
  if (call.argv.size() != 2 || !is_word(call.argv[1], "count")) return call.reply.array(0);
  const auto all = commands();
  call.reply.integer(std::count_if(all.begin(), all.end(),
                                   [](const Command& command) { return !command.subcommand; }));
}

/// Blocks the event loop on purpose, so it must be enabled at start, as in Redis 7.
void debug_sleep_command(Call& call) {
  if (!call.server.config.debug_command)
    return call.reply.error(
        "ERR DEBUG command not allowed: start the server with --enable-debug-command");
  constexpr double kLongest = 3600;
  const std::string_view text = call.argv[2];
  double seconds = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() ||
      !(seconds >= 0 && seconds <= kLongest))
    return call.reply.error("ERR value is not a valid float");
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  call.reply.simple("OK");
}

void shutdown_command(Call& call) {
  bool save = false, no_save = false, now = false, force = false, abort = false;
  for (const std::string_view word : call.argv.subspan(1)) {
    if (is_word(word, "save"))
      save = true;
    else if (is_word(word, "nosave"))
      no_save = true;
    else if (is_word(word, "now"))
      now = true;
    else if (is_word(word, "force"))
      force = true;
    else if (is_word(word, "abort"))
      abort = true;
    else
      return call.reply.error(kSyntaxError);
  }
  if ((save && no_save) || (abort && (save || no_save || now || force))) {
    return call.reply.error(kSyntaxError);
  }
  if (abort) return call.reply.error("ERR No shutdown in progress.");
  // There is nothing to save, with or without SAVE. The client sees the connection end.
  if (call.server.request_shutdown) call.server.request_shutdown(now);
}

constexpr Command kTable[] = {
    {"command", -1, 0, command_command},
    {"config", -2, 0, nullptr},
    {"config|get", -3, 0, config_get_command, 0, 0, 0, config_get_divided},
    {"config|set", -4, 0, config_set_command, 0, 0, 0, config_set_divided},
    {"debug", -2, 0, nullptr},
    {"debug|sleep", 3, 0, debug_sleep_command},
    {"shutdown", -1, 0, shutdown_command},
};

}  // namespace

std::span<const Command> server_commands() { return kTable; }

std::string configure(Server& server, std::string_view name, std::string_view value) {
  const Parameter* parameter = find_parameter(name);
  if (parameter == nullptr) return "there is no such parameter";
  if (parameter->set == nullptr) return "can't set immutable config";
  return parameter->set(server, value);
}

}  // namespace kv
