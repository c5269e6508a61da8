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
#include <string>

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

// Only types that need these members have them: tcp has none of them, and tls has all. So an extra
// or missing member shifts a function to where there is to be none, or the reverse.
constexpr std::uint64_t kOptional = bit(kInit) | bit(kCleanup) | bit(kConfigure) |
                                    bit(kUnbindEventLoop) |
                                    bits(kHasPendingData, kIntegrityChecked);

/// Checks the members that the layout has. Two of them are replaced, so the type must be writable.
bool is_type(const ServerType* type, std::uint64_t lacks) {
  if (!find(reinterpret_cast<std::uintptr_t>(type)).variable) return false;
  for (int i = 0; i < kMembers; ++i) {
    const auto member = static_cast<Member>(i);
    if (!layout->has(member)) continue;
    const auto word = reinterpret_cast<std::uintptr_t>(type->word[layout->position(member)]);
    if ((lacks & bit(member)) != 0) {
      if (word != 0) return false;
    } else if (member == kSyncHandlersInUpdateState) {
      if (static_cast<unsigned>(word) > 1) return false;
    } else if (!find(word).code) {
      return false;
    }
  }
  return true;
}

bool is_called(const ServerType* type, TypeId id, const char* name) {
  if (layout->numbered) return get(type, slots::get_type_number)() == static_cast<int>(id);
  return std::strcmp(get(type, slots::get_type_name)(nullptr), name) == 0;
}

bool types_fit() {
  const ServerType* tcp = server.tcp();
  const ServerType* tls = server.tls();
  return tcp != nullptr && is_type(tcp, kOptional) && (tls == nullptr || is_type(tls, 0)) &&
         is_called(tcp, TypeId::tcp, "tcp") &&
         (tls == nullptr || is_called(tls, TypeId::tls, "tls"));
}

/// Checks a real connection of the server.
bool connections_fit() {
  char mark = 0;
  auto* const mark_loop = reinterpret_cast<ServerLoop*>(&mark);
  ServerConnection* c = new_connection(mark_loop);
  bool fits = true;
  if (layout->loops) {
    fits = loop_of(c) == mark_loop;
    if (fits) loop_of(c) = nullptr;
  }
  const ServerType* tcp = server.tcp();
  fits = fits && c->type == tcp && c->state == kNone && c->fd == -1 && c->flags == 0 &&
         c->refs == 0 && c->iovcnt == IOV_MAX && c->private_data == nullptr &&
         handlers_of(c).connected == nullptr && handlers_of(c).writable == nullptr &&
         handlers_of(c).readable == nullptr;
  if (fits) {
    c->last_errno = ENOENT;
    fits = std::strcmp(get(tcp, slots::get_last_error)(c), std::strerror(ENOENT)) == 0;
    c->last_errno = 0;
  }
  if (fits) get(tcp, slots::close)(c);
  return fits;
}

/// Listeners are in an array, in the order of the types, and still empty at this point.
bool empty_listeners_fit() {
  const ServerListener *tcp = listener_of(TypeId::tcp), *unix_ = listener_of(TypeId::unix);
  return tcp != nullptr &&
         reinterpret_cast<std::uintptr_t>(unix_) - reinterpret_cast<std::uintptr_t>(tcp) ==
             listener_size();
}

/// What is laid out differently in this server, in the plural, or null.
const char* misfit() {
  if (!types_fit()) return "types of connections";
  if (!connections_fit()) return "connections";
  return empty_listeners_fit() ? nullptr : "listeners";
}

std::string& name_of_server() {
  static std::string name;
  return name;
}
std::string sentence(const char* what) {
  return std::string(what) + " of this server are not laid out as those of " + name_of_server() +
         ": it is patched, or newer than this module; use a server without the patch, a newer "
         "aeconn, or aeconn-proxy in front of the server";
}

}  // namespace

std::string unfit(const std::string& name) {
  name_of_server() = name;
  // First check: builds with RDMA must get this reason instead of one about a different layout.
  if (std::strcmp(layout->our_name, "rdma") == 0 && type_of(TypeId::ours) != nullptr)
    return "this Valkey is built with RDMA, whose place in the server it would take";
  const char* what = misfit();
  return what == nullptr ? std::string() : sentence(what);
}

std::string listeners_unfit() {
  const ServerListener& tcp = *listener_of(TypeId::tcp);
  if (tcp.ct == nullptr) return {};  // the server does not listen on TCP
  const bool fits =
      tcp.ct == server.tcp() && tcp.port > 0 && tcp.port <= 65535 && tcp.count >= 1 &&
      tcp.count <= kMaxBind && tcp.bindaddr_count >= 0 && tcp.bindaddr_count <= kMaxBind &&
      std::all_of(tcp.fd, tcp.fd + tcp.count, [](int fd) {
        int listens = 0;
        socklen_t size = sizeof listens;
        return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0;
      });
  return fits ? std::string() : sentence("listeners");
}

}  // namespace aeconn_redis
