// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Our own declarations of the server's interface: Redis 8.0, or (AECONN_VALKEY) Valkey 9.1. The
// layouts apply to these versions only; the version and a real object are checked before anything
// declared here is used.

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

namespace aeconn_redis {

struct ServerLoop;  // the server's event loop; only passed on
struct ServerConnection;
struct ServerListener;
using ServerHandler = void (*)(ServerConnection*);

inline constexpr int kOk = 0, kErr = -1;
enum ServerState : int { kNone, kConnecting, kAccepting, kConnected, kClosed, kError };
inline constexpr short kCloseScheduled = 1, kWriteBarrier = 2;  // ServerConnection::flags
inline constexpr int kMaxBind = 16;

#ifdef AECONN_VALKEY
using TypeName = int;  // a full enum: ours is the value of the absent RDMA type
inline constexpr TypeName kOurType = 3;
inline constexpr const char *kServer = "Valkey", *kVersionField = "valkey_version",
                            *kVersion = "9.1.", *kPrimarySync = "syncWithPrimary",
                            *kRdbChannel = "dual-channel-replication-enabled";
struct ClientFlags {
  std::uint64_t bits[2];
};
#else
using TypeName = const char*;
inline constexpr TypeName kOurType = "aeconn";
inline constexpr const char *kServer = "Redis", *kVersionField = "redis_version",
                            *kVersion = "8.0.", *kPrimarySync = "syncWithMaster",
                            *kRdbChannel = "repl-rdb-channel";
using ClientFlags = int;
#endif

struct ServerType {
#ifdef AECONN_VALKEY
  TypeName (*get_type)();
#else
  TypeName (*get_type)(ServerConnection*);
#endif
  void (*init)();
  void (*cleanup)();
  int (*configure)(void*, int);
  void (*ae_handler)(ServerLoop*, int, void*, int);
  void (*accept_handler)(ServerLoop*, int, void*, int);
  int (*addr)(ServerConnection*, char*, std::size_t, int*, int remote);
  int (*is_local)(ServerConnection*);
  int (*listen)(ServerListener*);
#ifdef AECONN_VALKEY
  void (*close_listener)(ServerListener*);
  ServerConnection* (*conn_create)();
  ServerConnection* (*conn_create_accepted)(int, void*);
#else
  ServerConnection* (*conn_create)(ServerLoop*);
  ServerConnection* (*conn_create_accepted)(ServerLoop*, int, void*);
#endif
  void (*shutdown)(ServerConnection*);
  void (*close)(ServerConnection*);
#ifdef AECONN_VALKEY
  int (*connect)(ServerConnection*, const char*, int, const char*, int multipath, ServerHandler);
#else
  int (*connect)(ServerConnection*, const char*, int, const char*, ServerHandler);
#endif
  int (*blocking_connect)(ServerConnection*, const char*, int, long long);
  int (*accept)(ServerConnection*, ServerHandler);
  int (*write)(ServerConnection*, const void*, std::size_t);
  int (*writev)(ServerConnection*, const iovec*, int);
  int (*read)(ServerConnection*, void*, std::size_t);
  int (*set_write_handler)(ServerConnection*, ServerHandler, int barrier);
  int (*set_read_handler)(ServerConnection*, ServerHandler);
  const char* (*get_last_error)(ServerConnection*);
  ssize_t (*sync_write)(ServerConnection*, char*, ssize_t, long long);
  ssize_t (*sync_read)(ServerConnection*, char*, ssize_t, long long);
  ssize_t (*sync_readline)(ServerConnection*, char*, ssize_t, long long);
#ifdef AECONN_VALKEY
  int (*has_pending_data)();
  int (*process_pending_data)();
  void (*postpone_update_state)(ServerConnection*, int);
  void (*update_state)(ServerConnection*);
  int sync_handlers_in_update_state;
  char* (*get_peer_cert)(ServerConnection*);
  void* (*get_peer_user)(ServerConnection*, char**);
  int (*integrity_checked)();
#else
  void (*unbind_event_loop)(ServerConnection*);
  int (*rebind_event_loop)(ServerConnection*, ServerLoop*);
  int (*has_pending_data)(ServerLoop*);
  int (*process_pending_data)(ServerLoop*);
  char* (*get_peer_cert)(ServerConnection*);
#endif
};

struct ServerConnection {
  ServerType* type;
  ServerState state;
  int last_errno;
  int fd;
  short flags;
  short refs;
  unsigned short iovcnt;
  void* private_data;
#ifndef AECONN_VALKEY
  ServerLoop* el;
#endif
  ServerHandler conn_handler;  // for use by the type; ours stores its state there
  ServerHandler write_handler;
  ServerHandler read_handler;
};

struct ServerListener {
  int fd[kMaxBind];
  int count;
  char** bindaddr;
  int bindaddr_count;
  int port;
  ServerType* ct;
  void* priv;
};

// Functions exported by the server. Looked up by name at load, so that other versions are refused
// with a message.
struct Server {
  int (*register_type)(ServerType*);
  ServerType* (*type_by_name)(TypeName);
  ServerType* (*tcp)();
  ServerType* (*tls)();  // may return null
  ServerListener* (*listener)(TypeName);
  void (*accepted)(ServerConnection*, ClientFlags, char* ip);
  void (*before_sleep)(ServerLoop*);
  void (*set_before_sleep)(ServerLoop*, void (*)(ServerLoop*));
  char* (*new_sds)(const void*, std::size_t);
  ServerHandler sync_with_primary;
};
extern Server server;
/// The name of the first symbol that the server lacks, or null.
const char* find_server();

}  // namespace aeconn_redis
