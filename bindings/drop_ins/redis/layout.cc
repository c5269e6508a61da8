// SPDX-License-Identifier: BSD-3-Clause
#include "drop_ins/redis/layout.h"

#include <link.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "drop_ins/redis/server_abi.h"

namespace aeconn_redis {
namespace {

struct Place {
  std::uintptr_t address;
  bool code = false, variable = false;
};

/// Looks the address up in the segments of all loaded objects.
Place find(std::uintptr_t address) {
  Place place{address};
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* data) {
        auto& to = *static_cast<Place*>(data);
        bool constant = false;
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const auto& segment = object->dlpi_phdr[i];
          if (to.address - (object->dlpi_addr + segment.p_vaddr) >= segment.p_memsz) continue;
          if (segment.p_type == PT_LOAD) {
            to.code = (segment.p_flags & PF_X) != 0;
            to.variable = (segment.p_flags & PF_W) != 0;
          } else if (segment.p_type == PT_GNU_RELRO) {
            constant = true;
          }
        }
        if (constant) to.variable = false;
        return to.code || to.variable || constant ? 1 : 0;
      },
      &place);
  return place;
}

template <class Function>
bool is_function(Function pointer) {
  return pointer != nullptr && find(reinterpret_cast<std::uintptr_t>(pointer)).code;
}
template <class... Functions>
bool are_functions(Functions... pointers) {
  return (is_function(pointers) && ...);
}
template <class Function>
bool may_be_function(Function pointer) {
  return pointer == nullptr || is_function(pointer);
}

/// Checks the functions that every type has. Two of them are replaced, so the type must be
/// writable.
bool is_type(const ServerType* type) {
  return find(reinterpret_cast<std::uintptr_t>(type)).variable &&
         are_functions(type->get_type, type->ae_handler, type->accept_handler, type->addr,
                       type->is_local, type->listen, type->conn_create, type->conn_create_accepted,
                       type->shutdown, type->close, type->connect, type->blocking_connect,
                       type->accept, type->write, type->writev, type->read, type->set_write_handler,
                       type->set_read_handler, type->get_last_error, type->sync_write,
                       type->sync_read, type->sync_readline) &&
         may_be_function(type->init) && may_be_function(type->cleanup) &&
         may_be_function(type->configure) && may_be_function(type->has_pending_data) &&
         may_be_function(type->process_pending_data) && may_be_function(type->get_peer_cert)
#ifdef AECONN_VALKEY
         && is_function(type->close_listener) && may_be_function(type->postpone_update_state) &&
         may_be_function(type->update_state) && may_be_function(type->get_peer_user) &&
         may_be_function(type->integrity_checked) &&
         (type->sync_handlers_in_update_state == 0 || type->sync_handlers_in_update_state == 1);
#else
         && may_be_function(type->unbind_event_loop) && is_function(type->rebind_event_loop);
#endif
}

/// tcp lacks the functions that only other types need: an extra or missing member would shift the
/// null entries.
bool types_fit() {
  const ServerType* tcp = server.tcp();
  const ServerType* tls = server.tls();
  if (tcp == nullptr || !is_type(tcp) || (tls != nullptr && !is_type(tls))) return false;
  if (tcp->init != nullptr || tcp->cleanup != nullptr || tcp->configure != nullptr ||
      tcp->has_pending_data != nullptr || tcp->process_pending_data != nullptr ||
      tcp->get_peer_cert != nullptr)
    return false;
#ifdef AECONN_VALKEY
  return tcp->get_type() == 0 && (tls == nullptr || tls->get_type() == 2);
#else
  return std::strcmp(tcp->get_type(nullptr), "tcp") == 0 &&
         (tls == nullptr || std::strcmp(tls->get_type(nullptr), "tls") == 0);
#endif
}

/// Checks a real connection of the server.
bool connections_fit() {
  ServerType* tcp = server.tcp();
#ifdef AECONN_VALKEY
  ServerConnection* c = tcp->conn_create();
  bool fits = true;
#else
  char mark = 0;
  ServerConnection* c = tcp->conn_create(reinterpret_cast<ServerLoop*>(&mark));
  bool fits = c->el == reinterpret_cast<ServerLoop*>(&mark);
  if (fits) c->el = nullptr;
#endif
  fits = fits && c->type == tcp && c->state == kNone && c->fd == -1 && c->flags == 0 &&
         c->refs == 0 && c->iovcnt == IOV_MAX && c->private_data == nullptr &&
         c->conn_handler == nullptr && c->write_handler == nullptr && c->read_handler == nullptr;
  if (fits) {
    c->last_errno = ENOENT;
    fits = std::strcmp(tcp->get_last_error(c), std::strerror(ENOENT)) == 0;
    c->last_errno = 0;
  }
  if (fits) tcp->close(c);
  return fits;
}

/// Listeners are in an array, in the order of the types, and still empty at this point.
bool empty_listeners_fit() {
#ifdef AECONN_VALKEY
  const ServerListener *tcp = server.listener(0), *unix_ = server.listener(1);
#else
  const ServerListener *tcp = server.listener("tcp"), *unix_ = server.listener("unix");
#endif
  return tcp != nullptr &&
         reinterpret_cast<std::uintptr_t>(unix_) - reinterpret_cast<std::uintptr_t>(tcp) ==
             sizeof(ServerListener);
}

/// What is laid out differently in this server, in the plural, or null.
const char* misfit() {
  if (!types_fit()) return "types of connections";
  if (!connections_fit()) return "connections";
  return empty_listeners_fit() ? nullptr : "listeners";
}

}  // namespace

std::string unfit() {
#ifdef AECONN_VALKEY
  // First check: builds with RDMA must get this reason instead of one about a different layout.
  if (server.type_by_name(kOurType) != nullptr)
    return "this Valkey is built with RDMA, whose place in the server it would take";
#endif
  if (const char* what = misfit())
    return std::string(what) + " of this server are not laid out as those of its version";
  return {};
}

bool listeners_fit() {
#ifdef AECONN_VALKEY
  const ServerListener& tcp = *server.listener(0);
#else
  const ServerListener& tcp = *server.listener("tcp");
#endif
  if (tcp.ct == nullptr) return true;  // the server does not listen on TCP
  return tcp.ct == server.tcp() && tcp.port > 0 && tcp.port <= 65535 && tcp.count >= 1 &&
         tcp.count <= kMaxBind && tcp.bindaddr_count >= 0 && tcp.bindaddr_count <= kMaxBind &&
         std::all_of(tcp.fd, tcp.fd + tcp.count, [](int fd) {
           int listens = 0;
           socklen_t size = sizeof listens;
           return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0;
         });
}

}  // namespace aeconn_redis
