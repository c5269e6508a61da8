// SPDX-License-Identifier: BSD-3-Clause
// CONFIG: one table of parameters.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "divided.h"

namespace kv {
namespace {

/// For loops that have nothing to tell.
struct Done {};

/// The reason a value is refused; empty if it was taken.
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

/// "normal <hard> <soft> <seconds>", other classes ignored, or one size.
std::string set_output_limit(Server& server, std::string_view text) {
  std::string storage;
  std::vector<TextSpan> spans;
  if (!split_arguments(text, storage, spans)) return "unbalanced quotes";
  const auto word = [&](std::size_t i) {
    return std::string_view(storage).substr(spans[i].offset, spans[i].size);
  };
  if (spans.size() == 1) return set_memory(word(0), server.config.client_output_limit);
  if (spans.empty() || spans.size() % 4 != 0) return "Wrong number of arguments in buffer limit";
  for (std::size_t i = 0; i < spans.size(); i += 4) {
    if (!is_word(word(i), "normal")) continue;
    std::uint64_t limit = 0;
    std::string reason = set_memory(word(i + 1), limit);
    if (!reason.empty()) return reason;
    server.config.client_output_limit = limit;
  }
  return {};
}

struct Parameter {
  std::string_view name;
  Getter get;
  Setter set;  ///< null: cannot be changed
};

// What this server has, then what clients and tools ask for and get a true answer to.
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
     [](const Server& s) {
       return fmt::format("normal {} 0 0 slave 0 0 0 pubsub 0 0 0", s.config.client_output_limit);
     },
     set_output_limit},
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
    {"databases", [](const Server& s) { return fmt::format("{}", s.database_count); }, nullptr},
    {"loops",
     [](const Server& s) {
       return fmt::format("{}", s.together != nullptr ? s.together->loops() : 1);
     },
     nullptr},
    {"event-loop", [](const Server& s) { return s.config.event_loop; }, nullptr},
    {"bind", [](const Server& s) { return fmt::format("{}", fmt::join(s.config.listen, " ")); },
     nullptr},
    {"save", [](const Server&) { return std::string(); }, nullptr},
    {"appendonly", [](const Server&) { return std::string("no"); }, nullptr},
    {"maxmemory-policy", [](const Server&) { return std::string("noeviction"); }, nullptr},
    {"hz", [](const Server&) { return std::string("10"); }, nullptr},
    {"io-threads", [](const Server&) { return std::string("1"); }, nullptr},
    {"cluster-enabled", [](const Server&) { return std::string("no"); }, nullptr},
};

const Parameter* find_parameter(std::string_view name) {
  for (const Parameter& parameter : kParameters) {
    if (is_word(name, parameter.name)) return &parameter;
  }
  return nullptr;
}

bool is_pattern(std::string_view text) {
  return text.find_first_of("*?[") != std::string_view::npos;
}

/// One of Server::more_parameters, under its own name; empty if there is none.
std::string_view find_more(const Server& server, std::string_view name) {
  if (server.more_parameters == nullptr) return {};
  for (const std::string_view known : server.more_parameters->names()) {
    if (is_word(name, known)) return known;
  }
  return {};
}

/// A request's memory is used again, not freed: what was a password does not stay in it.
void forget_passwords(Arguments argv) {
  for (std::size_t i = 2; i + 1 < argv.size(); i += 2) {
    if (!to_lower(argv[i]).ends_with("pass")) continue;
    explicit_bzero(const_cast<char*>(argv[i + 1].data()), argv[i + 1].size());
  }
}

/// False after the error was replied; nothing has changed then.
bool set_parameters(Call& call) {
  if (call.argv.size() % 2 != 0) {
    call.reply.error(kSyntaxError);
    return false;
  }
  const auto fail = [&call](std::string_view name, std::string_view reason) {
    call.reply.error(fmt::format("ERR CONFIG SET failed (possibly related to argument '{}') - {}",
                                 name, reason));
    return false;
  };
  MoreParameters::Values more;
  for (std::size_t i = 2; i < call.argv.size(); i += 2) {
    const Parameter* parameter = find_parameter(call.argv[i]);
    const std::string_view name =
        parameter != nullptr ? parameter->name : find_more(call.server, call.argv[i]);
    if (name.empty()) {
      call.reply.error(
          fmt::format("ERR Unknown option or number of arguments for CONFIG SET - '{}'",
                      call.argv[i].substr(0, call.argv[i].find('\0'))));
      return false;
    }
    if (parameter != nullptr && parameter->set == nullptr) {
      return fail(name, "can't set immutable config");
    }
    for (std::size_t j = 2; j < i; j += 2) {
      if (is_word(call.argv[j], name)) return fail(name, "duplicate parameter");
    }
    if (parameter == nullptr) more.emplace_back(name, call.argv[i + 1]);
  }
  const Config before = call.server.config;
  for (std::size_t i = 2; i < call.argv.size(); i += 2) {
    const Parameter* parameter = find_parameter(call.argv[i]);
    if (parameter == nullptr) continue;
    const std::string reason = parameter->set(call.server, call.argv[i + 1]);
    if (reason.empty()) continue;
    call.server.config = before;  // all or nothing
    return fail(parameter->name, reason);
  }
  if (!more.empty()) {
    if (const auto refusal = call.server.more_parameters->set(more)) {
      call.server.config = before;
      return fail(refusal->name, refusal->reason);
    }
  }
  return true;
}

}  // namespace

std::string configure(Server& server, std::string_view name, std::string_view value) {
  const Parameter* parameter = find_parameter(name);
  if (parameter == nullptr) return "there is no such parameter";
  if (parameter->set == nullptr) return "can't set immutable config";
  return parameter->set(server, value);
}

void config_get_command(Call& call) {
  std::vector<std::pair<std::string_view, std::string>> found;  // under the name asked for
  const auto wanted = [&call](std::string_view name) -> std::string_view {
    for (const std::string_view pattern : call.argv.subspan(2)) {
      if (is_pattern(pattern) && glob_match(pattern, name, true)) return name;
      if (!is_pattern(pattern) && is_word(pattern, name)) return pattern;
    }
    return {};
  };
  for (const Parameter& parameter : kParameters) {
    const std::string_view name = wanted(parameter.name);
    if (!name.empty()) found.emplace_back(name, parameter.get(call.server));
  }
  if (const MoreParameters* more = call.server.more_parameters) {
    for (const std::string_view parameter : more->names()) {
      const std::string_view name = wanted(parameter);
      if (!name.empty()) found.emplace_back(name, more->get(parameter));
    }
  }
  call.reply.map(found.size());
  for (const auto& [name, value] : found) {
    call.reply.bulk(name);
    call.reply.bulk(value);
  }
}

void config_set_command(Call& call) {
  if (set_parameters(call)) call.reply.ok();
  forget_passwords(call.argv);
}

/// In one copy that counts, and from there to each loop: OK means that it holds everywhere.
void config_set_divided(Call& call) {
  Together& together = *call.server.together;
  bool done = false;
  {
    const std::lock_guard lock(together.config_mutex);
    call.server.config = together.config;
    done = set_parameters(call);
    together.config = call.server.config;
  }
  forget_passwords(call.argv);
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

void config_resetstat_command(Call& call) {
  call.server.reset_statistics();
  call.reply.ok();
}

void config_resetstat_divided(Call& call) {
  Shards& shards = call.server.together->shards;
  for (std::size_t i = 0; i < shards.count(); ++i) {
    ShardLock(shards[i], call.server.data_bytes).store().reset_statistics();
  }
  ask_loops<Done>(
      call,
      [](Server& server) {
        server.reset_statistics();
        return Done();
      },
      [](Call& resumed, std::vector<Done>&) { resumed.reply.ok(); });
}

void config_help_command(Call& call) {
  static constexpr std::string_view kLines[] = {
      "GET <pattern> [<pattern> ...]",
      "    Names and values of the settings whose names match.",
      "SET <name> <value> [<name> <value> ...]",
      "    Change all of them, or none if one is refused.",
      "RESETSTAT",
      "    Count from zero again what INFO counts.",
  };
  reply_help(call, kLines);
}

}  // namespace kv
