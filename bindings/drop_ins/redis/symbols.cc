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
  FIND(type_by_name, "connectionByType");
  FIND(tcp, "connectionTypeTcp");
  FIND(tls, "connectionTypeTls");
  FIND(listener, "listenerByType");
  FIND(accepted, "acceptCommonHandler");
  FIND(before_sleep, "beforeSleep");
  FIND(set_before_sleep, "aeSetBeforeSleepProc");
  FIND(new_sds, "sdsnewlen");
  FIND(sync_with_primary, kPrimarySync);
#undef FIND
  return nullptr;
}

bool find_api(Context* context) {
  int (*get)(const char*, void*) = nullptr;
  std::memcpy(&get, context, sizeof get);  // by definition the context's first member
  bool all = true;
#define GET(name) all = get("RedisModule_" #name, &api.name) == 0 && all
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
  return all;
}

}  // namespace aeconn_redis
