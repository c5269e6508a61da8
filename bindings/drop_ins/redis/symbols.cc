// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>

#include <cstring>

#include "drop_ins/redis/module_api.h"
#include "drop_ins/redis/server_abi.h"

namespace aeconn_redis {

Server server;
ModuleApi api;

const char* find_server() {
  const auto find = [](auto& to, const char* name) {
    void* found = dlsym(RTLD_DEFAULT, name);
    std::memcpy(&to, &found, sizeof to);
    return found != nullptr;
  };
#define FIND(member, name) \
  if (!find(server.member, name)) return name
  FIND(register_type, "connTypeRegister");
  FIND(type_by_id, "connectionByType");
  FIND(listener_by_id, "listenerByType");
  FIND(accepted, "acceptCommonHandler");
  FIND(tcp, "connectionTypeTcp");
  FIND(tls, "connectionTypeTls");
  FIND(before_sleep, "beforeSleep");
  FIND(set_before_sleep, "aeSetBeforeSleepProc");
  FIND(new_sds, "sdsnewlen");
  if (!find(server.sync_with_primary, "syncWithPrimary"))  // Valkey since 8.0
    FIND(sync_with_primary, "syncWithMaster");
#undef FIND
  return nullptr;
}

namespace {

/// What connectionByType() or listenerByType() returns.
template <class Result>
Result* by_id(void* function, TypeId id) {
  const int number = static_cast<int>(id);
  if (layout->numbered) return reinterpret_cast<Result* (*)(int)>(function)(number);
  const char* const names[] = {"tcp", "unix", "tls", layout->our_name};
  return reinterpret_cast<Result* (*)(const char*)>(function)(names[number]);
}

/// The server's client flags, as a structure of words; none is set.
template <std::size_t Words>
struct ClientFlags {
  std::uint64_t bits[Words];
};
template <class Flags>
void accepted_as(ServerConnection* c, char* ip) {
  reinterpret_cast<void (*)(ServerConnection*, Flags, char*)>(server.accepted)(c, Flags{}, ip);
}

}  // namespace

ServerType* type_of(TypeId id) { return by_id<ServerType>(server.type_by_id, id); }
ServerListener* listener_of(TypeId id) { return by_id<ServerListener>(server.listener_by_id, id); }

ServerConnection* new_connection(ServerLoop* of) {
  const ServerType* tcp = server.tcp();
  return layout->loops ? get(tcp, slots::conn_create_in_loop)(of) : get(tcp, slots::conn_create)();
}

void accepted(ServerConnection* c, char* ip) {
  switch (layout->flag_words) {
    case 0:
      return accepted_as<int>(c, ip);
    case 1:
      return accepted_as<ClientFlags<1>>(c, ip);
    default:
      return accepted_as<ClientFlags<2>>(c, ip);
  }
}

const char* find_api(Context* context) {
  int (*get)(const char*, void*) = nullptr;
  std::memcpy(&get, context, sizeof get);  // by definition the context's first member
  const char* missing = nullptr;
#define GET(name) \
  if (get("RedisModule_" #name, &api.name) != 0 && missing == nullptr) missing = #name
  GET(SetModuleAttribs);
  GET(SetModuleOptions);
  GET(Log);
  GET(GetContextFlags);
  GET(StringPtrLen);
  GET(CreateString);
  GET(FreeString);
  GET(Call);
  GET(FreeCallReply);
  GET(CallReplyArrayElement);
  GET(CallReplyStringPtr);
  GET(GetServerInfo);
  GET(FreeServerInfo);
  GET(ServerInfoGetFieldC);
  GET(RegisterStringConfig);
  GET(LoadConfigs);
  GET(RegisterInfoFunc);
  GET(InfoAddSection);
  GET(InfoAddFieldULongLong);
  GET(SubscribeToServerEvent);
#undef GET
  return missing;
}

}  // namespace aeconn_redis
