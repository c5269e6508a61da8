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

namespace aeconn_redis { namespace {

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

/// Why the module cannot be loaded into this server; empty if it can.
std::string refusal(Context* context) {
  if ((api.GetContextFlags(context) & kServerStartup) == 0)
    return "it can only be loaded when the server starts: by loadmodule in its configuration, or "
           "by "
           "--loadmodule";
  ServerInfo* info = api.GetServerInfo(context, "server");
  const char* found = api.ServerInfoGetFieldC(info, kVersionField);
  const std::string version = found == nullptr ? "" : found;
  api.FreeServerInfo(context, info);
  if (!version.starts_with(kVersion))
    return "it is made for " + std::string(kServer) + " " + kVersion + "x, and this is " +
           (version.empty() ? "another server" : version);
  if (const char* missing = find_server())
    return "this server does not export " + std::string(missing);
  if (std::string why = unfit(); !why.empty()) return why;
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

void take_patience(Context* context) {
  if (const std::string seconds = setting(context, "repl-timeout"); !seconds.empty())
    host->set_patience(std::chrono::seconds(std::atoi(seconds.c_str())));
}

/// The server notifies modules only after a setting was changed, but before the command completes.
void settings_changed(Context* context, ModuleEvent, std::uint64_t, void* data) {
  const auto* change = static_cast<const ConfigChange*>(data);
  // Only for relevant settings: each call runs as a normal command that appears, for example, in
  // the slow log.
  for (std::uint32_t i = 0; i < change->count; ++i) {
    const std::string_view name = change->names[i];
#ifdef AECONN_VALKEY
    if (name == "io-threads")
      insist(context, "io-threads", "1", "connections cannot go to other threads");
#endif
    if (name == kRdbChannel)
      insist(context, kRdbChannel, "no",
             "a child of the server cannot write to a replica's connection");
    if (name == "repl-timeout") take_patience(context);
  }
}

/// end() must run last: after this event the server still writes to its replicas.
void shutting_down(Context*, ModuleEvent, std::uint64_t, void*) { std::atexit(Host::end); }

int load(Context* context, Text** arguments, int count) {
  api.SetModuleAttribs(context, "aeconn", 1, 1);
  if (const std::string why = refusal(context); !why.empty()) {
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
  insist(context, kRdbChannel, "no", nullptr);  // on by default in Redis
  take_patience(context);
  if (server.register_type(&our_type) != kOk) {
    api.Log(context, "warning", "aeconn: the server cannot register another type of connection.");
    return 1;
  }
  server.listener(kOurType)->ct = &our_type;
  hook_connects();
  pthread_atfork(nullptr, nullptr, Host::forked);
  return 0;
}

}  // namespace
}  // namespace aeconn_redis

extern "C" {

int RedisModule_OnLoad(aeconn_redis::Context* context, aeconn_redis::Text** arguments,
                       int count) try {
  return aeconn_redis::find_api(context) ? aeconn_redis::load(context, arguments, count) : 1;
} catch (const std::exception& error) {
  aeconn_redis::log_warning(std::string("aeconn: ") + error.what());
  return 1;
}

int RedisModule_OnUnload(aeconn_redis::Context*) { return 1; }  // refused: clients depend on it
}
