// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Our own declarations of the server's interface. What all served releases of Redis and Valkey have
// in common is declared here; what differs is in the layout of the release, which is chosen at load
// (releases.h). The version and real objects are checked before anything declared here is used.

#include <sys/types.h>
#include <sys/uio.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace aeconn_redis {

struct ServerLoop;  // the server's event loop; only passed on
struct ServerListener;
struct ServerConnection;
using ServerHandler = void (*)(ServerConnection*);

inline constexpr int kOk = 0, kErr = -1;
enum ServerState : int { kNone, kConnecting, kAccepting, kConnected, kClosed, kError };
inline constexpr short kCloseScheduled = 1, kWriteBarrier = 2;  // ServerConnection::flags
inline constexpr int kMaxBind = 16;

/// The entries of a connection type's table, in the order that all releases keep. A release has a
/// part of them.
enum Member : unsigned char {
  kGetType,
  kInit,
  kCleanup,
  kConfigure,
  kAeHandler,
  kAcceptHandler,
  kAddr,
  kIsLocal,
  kListen,
  kCloseListener,
  kConnCreate,
  kConnCreateAccepted,
  kShutdown,
  kClose,
  kConnect,
  kBlockingConnect,
  kAccept,
  kWrite,
  kWritev,
  kRead,
  kSetWriteHandler,
  kSetReadHandler,
  kGetLastError,
  kSyncWrite,
  kSyncRead,
  kSyncReadline,
  kUnbindEventLoop,
  kRebindEventLoop,
  kHasPendingData,
  kProcessPendingData,
  kPostponeUpdateState,
  kUpdateState,
  kSyncHandlersInUpdateState,  // an int; all others are functions
  kGetPeerCert,
  kGetPeerUser,
  kIntegrityChecked,
  kMembers
};
constexpr std::uint64_t bit(Member member) { return std::uint64_t{1} << member; }
/// All entries from `first` to `last`.
constexpr std::uint64_t bits(Member first, Member last) { return (bit(last) << 1) - bit(first); }

/// How a release lays out what is used of it.
struct Layout {
  std::uint64_t members;    // the table's entries: bit() of each
  bool numbered;            // types of connections have numbers; otherwise names
  const char* our_name;     // our type's name; with numbers, ours is that of RDMA
  bool loops;               // a connection knows its event loop, and one is passed at creation
  bool multipath;           // connect() has a parameter for Multipath TCP
  unsigned flag_words;      // of client flags passed by value; 0: they are an int
  unsigned listener_words;  // of a listener after its type

  constexpr bool has(Member member) const { return (members & bit(member)) != 0; }
  /// Where the member is in a table, in words.
  constexpr std::size_t position(Member member) const {
    return static_cast<std::size_t>(std::popcount(members & (bit(member) - 1)));
  }
  constexpr std::size_t words() const { return static_cast<std::size_t>(std::popcount(members)); }
};
/// The layout of the server that the module is loaded into. Set once, before anything else of the
/// server is used.
extern const Layout* layout;

/// The table of a connection type. The server's tables end where their release says; ours has empty
/// entries after that, so a release that appends an optional function finds none.
struct ServerType {
  void* word[kMembers + 4];
};

/// A member of the table with its signature.
template <class Function>
struct Slot {
  Member member;
};
template <class Function>
Function* get(const ServerType* type, Slot<Function> slot) {
  if (!layout->has(slot.member)) return nullptr;
  Function* function;
  std::memcpy(&function, &type->word[layout->position(slot.member)], sizeof function);
  return function;
}
/// Does nothing if the release has no such member.
template <class Function>
void put(ServerType& type, Slot<Function> slot, std::type_identity_t<Function>* function) {
  if (layout->has(slot.member))
    std::memcpy(&type.word[layout->position(slot.member)], &function, sizeof function);
}

namespace slots {
// Those of which releases have several forms are named after what chooses the form.
inline constexpr Slot<const char*(ServerConnection*)> get_type_name{kGetType};
inline constexpr Slot<int()> get_type_number{kGetType};
inline constexpr Slot<void(ServerLoop*, int, void*, int)> accept_handler{kAcceptHandler};
inline constexpr Slot<int(ServerConnection*, char*, std::size_t, int*, int remote)> addr{kAddr};
inline constexpr Slot<int(ServerConnection*)> is_local{kIsLocal};
inline constexpr Slot<int(ServerListener*)> listen{kListen};
inline constexpr Slot<void(ServerListener*)> close_listener{kCloseListener};
inline constexpr Slot<ServerConnection*()> conn_create{kConnCreate};
inline constexpr Slot<ServerConnection*(ServerLoop*)> conn_create_in_loop{kConnCreate};
inline constexpr Slot<void(ServerConnection*)> shutdown{kShutdown};
inline constexpr Slot<void(ServerConnection*)> close{kClose};
inline constexpr Slot<int(ServerConnection*, const char*, int, const char*, ServerHandler)> connect{
    kConnect};
inline constexpr Slot<int(ServerConnection*, const char*, int, const char*, int, ServerHandler)>
    connect_multipath{kConnect};
inline constexpr Slot<int(ServerConnection*, const char*, int, long long)> blocking_connect{
    kBlockingConnect};
inline constexpr Slot<int(ServerConnection*, ServerHandler)> accept{kAccept};
inline constexpr Slot<int(ServerConnection*, const void*, std::size_t)> write{kWrite};
inline constexpr Slot<int(ServerConnection*, const iovec*, int)> writev{kWritev};
inline constexpr Slot<int(ServerConnection*, void*, std::size_t)> read{kRead};
inline constexpr Slot<int(ServerConnection*, ServerHandler, int barrier)> set_write_handler{
    kSetWriteHandler};
inline constexpr Slot<int(ServerConnection*, ServerHandler)> set_read_handler{kSetReadHandler};
inline constexpr Slot<const char*(ServerConnection*)> get_last_error{kGetLastError};
using Synchronous = Slot<ssize_t(ServerConnection*, char*, ssize_t, long long)>;
inline constexpr Synchronous sync_write{kSyncWrite}, sync_read{kSyncRead},
    sync_readline{kSyncReadline};
inline constexpr Slot<void(ServerConnection*)> unbind_event_loop{kUnbindEventLoop};
inline constexpr Slot<int(ServerConnection*, ServerLoop*)> rebind_event_loop{kRebindEventLoop};
inline constexpr Slot<char*(ServerConnection*)> get_peer_cert{kGetPeerCert};
inline constexpr Slot<int()> integrity_checked{kIntegrityChecked};
}  // namespace slots

/// The beginning of a connection, which all releases share; then the event loop, where the layout
/// has one, and the handlers.
struct ServerConnection {
  ServerType* type;
  ServerState state;
  int last_errno;
  int fd;
  short flags;
  short refs;
  unsigned short iovcnt;
  void* private_data;
};
struct ServerHandlers {
  ServerHandler connected;  // for use by the type; ours stores its state there
  ServerHandler writable;
  ServerHandler readable;
};
/// The layout must have loops.
inline ServerLoop*& loop_of(ServerConnection* c) { return *reinterpret_cast<ServerLoop**>(c + 1); }
inline ServerHandlers& handlers_of(ServerConnection* c) {
  return *reinterpret_cast<ServerHandlers*>(reinterpret_cast<void**>(c + 1) +
                                            (layout->loops ? 1 : 0));
}
/// Enough for a connection of every release.
inline constexpr std::size_t kMaxConnection =
    sizeof(ServerConnection) + sizeof(ServerLoop*) + sizeof(ServerHandlers);

/// The beginning of a listener; words that only the type uses follow.
struct ServerListener {
  int fd[kMaxBind];
  int count;
  char** bindaddr;
  int bindaddr_count;
  int port;
  ServerType* ct;
};
inline std::size_t listener_size() {
  return sizeof(ServerListener) + layout->listener_words * sizeof(void*);
}

/// The types that are asked for, by the numbers of releases that have them.
enum class TypeId : int { tcp, unix, tls, ours };

/// Functions exported by the server. Looked up by name at load, so that a server without one is
/// refused with a message. Those whose signature depends on the layout have no type here: call the
/// functions below.
struct Server {
  int (*register_type)(ServerType*);
  void* type_by_id;
  void* listener_by_id;
  void* accepted;
  ServerType* (*tcp)();
  ServerType* (*tls)();  // may return null
  void (*before_sleep)(ServerLoop*);
  void (*set_before_sleep)(ServerLoop*, void (*)(ServerLoop*));
  char* (*new_sds)(const void*, std::size_t);
  ServerHandler sync_with_primary;
};
extern Server server;
/// The name of the first symbol that the server lacks, or null.
const char* find_server();
/// Null if the server has no such type.
ServerType* type_of(TypeId id);
ServerListener* listener_of(TypeId id);
/// A connection of the server's tcp type. `of` is its event loop, if the layout has them.
ServerConnection* new_connection(ServerLoop* of);
/// Gives the server a connection that was accepted.
void accepted(ServerConnection* c, char* ip);

}  // namespace aeconn_redis
