// SPDX-License-Identifier: BSD-3-Clause
// COMMAND, CONFIG, DEBUG SLEEP and SHUTDOWN.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <chrono>
#include <cstring>
#include <thread>

#include "command.h"

namespace kv {
namespace {

// --- CONFIG --------------------------------------------------------------------------------------

/// Returns the reason of a refusal, or "".
using Setter = std::string (*)(Config&, std::string_view);
using Getter = std::string (*)(const Config&);

template <auto Member>
std::string shown(const Config& config) {
  return fmt::format("{}", config.*Member);
}

template <auto Member, std::int64_t kLow, std::int64_t kHigh>
std::string set_number(Config& config, std::string_view text) {
  const auto value = parse_integer(text);
  if (!value) return "argument couldn't be parsed into an integer";
  if (*value < kLow || *value > kHigh)
    return fmt::format("argument must be between {} and {} inclusive", kLow, kHigh);
  config.*Member = *value;
  return {};
}

template <auto Member>
std::string set_memory(Config& config, std::string_view text) {
  const auto value = parse_memory(text);
  if (!value) return "argument must be a memory value";
  config.*Member = *value;
  return {};
}

std::string set_bulk(Config& config, std::string_view text) {
  constexpr std::uint64_t kLow = 1 << 20, kHigh = std::uint64_t{2} << 30;
  const auto value = parse_memory(text);
  if (!value) return "argument must be a memory value";
  if (*value < kLow || *value > kHigh)
    return fmt::format("argument must be between {} and {} inclusive", kLow, kHigh);
  config.parser.bulk = static_cast<std::int64_t>(*value);
  return {};
}

std::string set_password(Config& config, std::string_view text) {
  config.requirepass = text;
  return {};
}

std::string set_loglevel(Config& config, std::string_view text) {
  for (const std::string_view each : kLogLevels) {
    if (!is_word(text, each)) continue;
    config.loglevel = each;
    return {};
  }
  return fmt::format("argument(s) must be one of the following: {}", fmt::join(kLogLevels, ", "));
}

struct Parameter {
  std::string_view name;
  Getter get;
  Setter set;  ///< null: read-only
};

/// The server's own parameters; `save` and `appendonly` are what redis-benchmark asks for.
constexpr Parameter kParameters[] = {
    {"maxclients", shown<&Config::maxclients>, set_number<&Config::maxclients, 1, UINT32_MAX>},
    {"maxmemory", shown<&Config::maxmemory>, set_memory<&Config::maxmemory>},
    {"maxmemory-clients", shown<&Config::clients_memory_limit>,
     set_memory<&Config::clients_memory_limit>},
    {"client-query-buffer-limit", shown<&Config::client_query_limit>,
     set_memory<&Config::client_query_limit>},
    {"client-output-buffer-limit", shown<&Config::client_output_limit>,
     set_memory<&Config::client_output_limit>},
    {"proto-max-bulk-len", [](const Config& c) { return fmt::format("{}", c.parser.bulk); },
     set_bulk},
    {"requirepass", shown<&Config::requirepass>, set_password},
    {"timeout", shown<&Config::timeout_seconds>,
     set_number<&Config::timeout_seconds, 0, INT32_MAX>},
    {"loglevel", shown<&Config::loglevel>, set_loglevel},
    {"loops", shown<&Config::loops>, nullptr},
    {"event-loop", shown<&Config::event_loop>, nullptr},
    {"save", [](const Config&) { return std::string(); }, nullptr},
    {"appendonly", [](const Config&) { return std::string("no"); }, nullptr},
};

const Parameter* find_parameter(std::string_view name) {
  for (const Parameter& parameter : kParameters) {
    if (is_word(name, parameter.name)) return &parameter;
  }
  return nullptr;
}

/// Replies the parameters of these names. Leaves out names that do not exist, as Redis does.
void config_get_command(Call& call) {
  std::vector<std::pair<std::string_view, const Parameter*>> found;
  for (const std::string_view name : call.argv.subspan(2)) {
    if (const Parameter* parameter = find_parameter(name)) found.emplace_back(name, parameter);
  }
  call.reply.map(found.size());
  for (const auto& [name, parameter] : found) {
    call.reply.bulk(name);
    call.reply.bulk(parameter->get(call.server.config));
  }
}

/// Changes the authoritative configuration, which each loop then copies. The reply OK means that
/// the change holds on every loop.
void config_set_command(Call& call) {
  Together& together = call.server.together;
  {
    const std::lock_guard lock(together.config_mutex);
    const std::string reason = configure(together.config, call.argv[2], call.argv[3]);
    // The memory of a request is used again, and not freed: a password must not stay in it.
    if (is_word(call.argv[2], "requirepass"))
      explicit_bzero(const_cast<char*>(call.argv[3].data()), call.argv[3].size());
    if (!reason.empty()) {
      return call.reply.error(
          fmt::format("ERR CONFIG SET failed (possibly related to argument '{}') - {}",
                      c_string(call.argv[2]), reason));
    }
  }
  struct Done {};
  ask_loops<Done>(
      call,
      [](Server& server) {
        const std::lock_guard lock(server.together.config_mutex);
        server.config = server.together.config;
        return Done();
      },
      [](Call& resumed, std::vector<Done>&) { resumed.reply.ok(); });
}

// --- the rest ------------------------------------------------------------------------------------

/// What clients ask for, such as redis-cli's COMMAND DOCS, gets an empty array.
void command_command(Call& call) { call.reply.array(0); }

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

/// There is nothing to save, with or without SAVE. The client sees the connection end.
void shutdown_command(Call& call) {
  if (call.server.together.request_shutdown) call.server.together.request_shutdown();
}

constexpr Command kServerTable[] = {
    {"command", -1, 0, command_command},
    {"config", -2, 0, nullptr},
    {"config|get", -3, 0, config_get_command},
    {"config|set", 4, 0, config_set_command},
    {"debug", -2, 0, nullptr},
    {"debug|sleep", 3, 0, debug_sleep_command},
    {"info", -1, 0, info_command},
    {"shutdown", -1, 0, shutdown_command},
};

}  // namespace

std::span<const Command> server_commands() { return kServerTable; }

std::string configure(Config& config, std::string_view name, std::string_view value) {
  const Parameter* parameter = find_parameter(name);
  if (parameter == nullptr) return "there is no such parameter";
  if (parameter->set == nullptr) return "can't set immutable config";
  return parameter->set(config, value);
}

}  // namespace kv
