// SPDX-License-Identifier: BSD-3-Clause
// Loading of the module: refusals, configuration, and its section of INFO.

#include <pthread.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "drop_ins/redis/host.h"
#include "drop_ins/redis/layout.h"
#include "drop_ins/redis/module_api.h"
#include "drop_ins/redis/releases.h"

namespace aeconn_redis { namespace {

// Settings for replication through a second connection, which a child of the server writes to: of
// Redis, on by default, and of Valkey. Releases before 8.0 have neither.
constexpr const char* kRdbChannels[] = {"repl-rdb-channel", "dual-channel-replication-enabled"};

std::string setting(Context* context, const char* name) {
  Reply* reply = api.Call(context, "CONFIG", "cc", "GET", name);
  if (reply == nullptr) return {};
  std::size_t size = 0;
  Reply* value = api.CallReplyArrayElement(reply, 1);
  const char* text = value == nullptr ? nullptr : api.CallReplyStringPtr(value, &size);
  std::string result(text == nullptr ? "" : text, size);
  api.FreeCallReply(reply);
  return result;
}

/// What the server says of itself; empty for a release that does not tell modules. Valkey also
/// names the Redis that it is compatible with.
Version version_of(Context* context) {
  Version version;
  if (api.GetServerInfo == nullptr || api.ServerInfoGetFieldC == nullptr ||
      api.FreeServerInfo == nullptr)
    return version;
  ServerInfo* info = api.GetServerInfo(context, "server");
  const char* found = api.ServerInfoGetFieldC(info, "valkey_version");
  version.valkey = found != nullptr;
  if (found == nullptr) found = api.ServerInfoGetFieldC(info, "redis_version");
  if (found != nullptr) version.text = found;
  api.FreeServerInfo(context, info);
  return version;
}

/// Why the module cannot be loaded into this server; empty if it can. `missing` is a function of
/// the module interface that the server lacks, or null.
std::string refusal(Context* context, const char* missing) {
  // First: what follows is only true of releases that are known.
  const Version version = version_of(context);
  layout = layout_for(version);
  if (layout == nullptr)
    return "this is " + (version.text.empty() ? "a server without a version" : version.name()) +
           ", and the module serves " + served_releases() +
           ": use one of these, or aeconn-proxy in front of the server";
  if (missing != nullptr) return "this server has no RedisModule_" + std::string(missing);
  if ((api.GetContextFlags(context) & kServerStartup) == 0)
    return "it can only be loaded when the server starts: by loadmodule in its configuration, or "
           "by --loadmodule";
  if (const char* symbol = find_server())
    return "this server does not export " + std::string(symbol);
  if (std::string why = unfit(version.name()); !why.empty()) return why;
  const std::string threads = setting(context, "io-threads");
  if (threads != "1")
    return "connections cannot go to other threads, so io-threads has to be 1, and is " + threads;
  return {};
}

Text* get_text(const char*, void* which) {
  const std::string& value = which == nullptr ? host->urls() : host->replicate();
  static Text* kept[2] = {};  // strings passed to the server remain ours
  Text*& text = kept[which != nullptr];
  if (text != nullptr) api.FreeString(nullptr, text);
  return text = api.CreateString(nullptr, value.data(), value.size());
}

int set_text(const char*, Text* value, void* which, Text** error) {
  std::size_t size = 0;
  const char* text = api.StringPtrLen(value, &size);
  try {
    if (which == nullptr)
      host->set_urls({text, size});
    else
      host->set_replicate({text, size});
    return kOk;
  } catch (const std::exception& why) {
    log_warning(std::string("aeconn: ") + why.what());
    if (error != nullptr) *error = api.CreateString(nullptr, why.what(), std::strlen(why.what()));
    return 1;
  }
}

void show(InfoContext* info, int crashed) {
  if (crashed != 0) return;
  api.InfoAddSection(info, "connections");
  for (const auto& type : host->registry().types())
    for (const auto& [name, value] : type->statistics(host->loop())) {
      std::string field = std::string(type->name()) + "_" + name;
      for (char& letter : field)
        if (letter == '+' || letter == '-') letter = '_';
      api.InfoAddFieldULongLong(info, field.c_str(), value);
    }
}

/// Resets a setting that was changed to an unsupported value, and logs `why` unless null.
void insist(Context* context, const char* name, const char* only, const char* why) {
  const std::string found = setting(context, name);
  if (found.empty() || found == only) return;
  if (why != nullptr)
    log_warning("aeconn: " + std::string(why) + ": " + name + " stays " + only + ", not " + found +
                ".");
  if (Reply* reply = api.Call(context, "CONFIG", "ccc", "SET", name, only))
    api.FreeCallReply(reply);
}

void take_time_limit(Context* context) {
  if (const std::string seconds = setting(context, "repl-timeout"); !seconds.empty())
    host->set_time_limit(std::chrono::seconds(std::atoi(seconds.c_str())));
}

/// The server notifies modules only after a setting was changed, but before the command completes.
void settings_changed(Context* context, ModuleEvent, std::uint64_t, void* data) {
  const auto* change = static_cast<const ConfigChange*>(data);
  // Only for relevant settings: each call runs as a normal command that appears, for example, in
  // the slow log.
  for (std::uint32_t i = 0; i < change->count; ++i) {
    const std::string_view name = change->names[i];
    if (name == "io-threads")
      insist(context, "io-threads", "1", "connections cannot go to other threads");
    for (const char* channel : kRdbChannels)
      if (name == channel)
        insist(context, channel, "no",
               "a child of the server cannot write to a replica's connection");
    if (name == "repl-timeout") take_time_limit(context);
  }
}

/// end() must run last: after this event the server still writes to its replicas.
void shutting_down(Context*, ModuleEvent, std::uint64_t, void*) { std::atexit(Host::end); }

int load(Context* context, Text** arguments, int count, const char* missing) {
  api.SetModuleAttribs(context, "aeconn", 1, 1);
  if (const std::string why = refusal(context, missing); !why.empty()) {
    api.Log(context, "warning", "aeconn: %s.", why.c_str());
    return 1;
  }
  api.SetModuleOptions(context, kHandlesIoErrors | kHandlesAsyncLoad);
  std::string urls;
  for (int i = 0; i < count; ++i)
    urls += (i == 0 ? "" : " ") + std::string(api.StringPtrLen(arguments[i], nullptr));
  host = new Host;
  host->set_urls(urls);
  static char second;
  if (api.RegisterStringConfig(context, "listen", urls.c_str(), 0, get_text, set_text, nullptr,
                               nullptr) != 0 ||
      api.RegisterStringConfig(context, "replicate", "", 0, get_text, set_text, nullptr, &second) !=
          0 ||
      api.LoadConfigs(context) != 0)
    return 1;
  api.RegisterInfoFunc(context, show);
  api.SubscribeToServerEvent(context, kConfigEvent, settings_changed);
  api.SubscribeToServerEvent(context, kShutdownEvent, shutting_down);
  for (const char* channel : kRdbChannels) insist(context, channel, "no", nullptr);
  take_time_limit(context);
  make_our_type();
  if (server.register_type(&our_type) != kOk) {
    api.Log(context, "warning", "aeconn: the server cannot register another type of connection.");
    return 1;
  }
  listener_of(TypeId::ours)->ct = &our_type;
  hook_connects();
  pthread_atfork(nullptr, nullptr, Host::forked);
  return 0;
}

}  // namespace
}  // namespace aeconn_redis

extern "C" {

int RedisModule_OnLoad(aeconn_redis::Context* context, aeconn_redis::Text** arguments,
                       int count) try {
  const char* missing = aeconn_redis::find_api(context);
  const auto& api = aeconn_redis::api;
  // A server that cannot be told why.
  if (api.SetModuleAttribs == nullptr || api.Log == nullptr) return 1;
  return aeconn_redis::load(context, arguments, count, missing);
} catch (const std::exception& error) {
  aeconn_redis::log_warning(std::string("aeconn: ") + error.what());
  return 1;
}

int RedisModule_OnUnload(aeconn_redis::Context*) { return 1; }  // refused: clients depend on it
}
