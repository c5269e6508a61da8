// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The functions of the module interface used here, looked up by name with the server's GetApi.

#include <cstddef>
#include <cstdint>

namespace aeconn_redis {

struct Context;
struct Text;  // a RedisModuleString
struct Reply;
struct InfoContext;
struct ServerInfo;

struct ModuleEvent {
  std::uint64_t id, version;
};
struct ConfigChange {  // data of kConfigEvent
  std::uint64_t version;
  std::uint32_t count;
  const char** names;
};
inline constexpr ModuleEvent kShutdownEvent{5, 1}, kConfigEvent{16, 1};

struct ModuleApi {
  void (*SetModuleAttribs)(Context*, const char*, int version, int api);
  void (*SetModuleOptions)(Context*, int);
  void (*Log)(Context*, const char* level, const char* format, ...);
  int (*GetContextFlags)(Context*);
  const char* (*StringPtrLen)(const Text*, std::size_t*);
  Text* (*CreateString)(Context*, const char*, std::size_t);
  void (*FreeString)(Context*, Text*);
  Reply* (*Call)(Context*, const char* command, const char* format, ...);
  void (*FreeCallReply)(Reply*);
  Reply* (*CallReplyArrayElement)(Reply*, std::size_t);
  const char* (*CallReplyStringPtr)(Reply*, std::size_t*);
  ServerInfo* (*GetServerInfo)(Context*, const char* section);
  void (*FreeServerInfo)(Context*, ServerInfo*);
  const char* (*ServerInfoGetFieldC)(ServerInfo*, const char*);
  int (*RegisterStringConfig)(Context*, const char*, const char*, unsigned,
                              Text* (*)(const char*, void*),
                              int (*)(const char*, Text*, void*, Text**),
                              int (*)(Context*, void*, Text**), void*);
  int (*LoadConfigs)(Context*);
  int (*RegisterInfoFunc)(Context*, void (*)(InfoContext*, int));
  int (*InfoAddSection)(InfoContext*, const char*);
  int (*InfoAddFieldULongLong)(InfoContext*, const char*, unsigned long long);
  int (*SubscribeToServerEvent)(Context*, ModuleEvent,
                                void (*)(Context*, ModuleEvent, std::uint64_t, void*));
};
extern ModuleApi api;
inline constexpr int kServerStartup = 1 << 24;  // of GetContextFlags()
// For SetModuleOptions(): the module has no data, so a replica may load its data in any way.
inline constexpr int kHandlesIoErrors = 1 << 0, kHandlesAsyncLoad = 1 << 2;
/// Looks up all functions. Returns the name of the first that the server lacks, or null.
const char* find_api(Context* context);

}  // namespace aeconn_redis
