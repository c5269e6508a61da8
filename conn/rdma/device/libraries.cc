// SPDX-License-Identifier: BSD-3-Clause
// Defines each function of libibverbs and librdmacm that this library calls, under the name that
// functions.h gives it. Each definition forwards the call to the original function, in the library
// that the first such call loads, or that is linked (RDMA=link). The definitions have hidden
// visibility, so a shared library that contains this one calls its own copies. The functions that
// are called for every message (ibv_post_send(), ibv_poll_cq()) are not among them: they are inline
// in the headers and call the driver directly.
#include "conn/rdma/device/libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <filesystem>

#include "ae/once.h"
#include "conn/rdma/device/functions.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

struct Library {
  const char* file;
  void* handle = nullptr;
  std::string why;  // dlerror()'s text if the library could not be loaded, otherwise empty

  explicit Library(const char* name) : file(name), handle(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
    if (handle == nullptr)
      if (const char* text = dlerror(); text != nullptr) why = text;
  }
};

// Loads both libraries, libibverbs first, because librdmacm needs it.
const std::array<Library, 2>& both() {
  return ae::once([] {
    return std::array<Library, 2>{Library("libibverbs.so.1"), Library("librdmacm.so.1")};
  });
}

}  // namespace

std::string missing_libraries() {
  for (const Library& each : both())
    if (each.handle == nullptr)
      return fmt::format(
          "rdma needs {}, which this machine does not have: install libibverbs1, librdmacm1 and "
          "ibverbs-providers (Debian, Ubuntu) or rdma-core ({})",
          each.file, each.why);
  return {};
}

std::vector<std::string> library_files() {
  std::vector<std::string> files;
  for (const Library& each : both()) {
    link_map* map = nullptr;
    if (each.handle == nullptr || dlinfo(each.handle, RTLD_DI_LINKMAP, &map) != 0) continue;
    // If canonical() fails, the file name that the dynamic linker reports is returned instead.
    std::error_code failed;
    const auto file = std::filesystem::canonical(map->l_name, failed);
    files.push_back(failed ? map->l_name : file.string());
  }
  return files;
}

#if !AECONN_RDMA_LINK
namespace {

enum class In : std::uint8_t { kVerbs, kCm };

// Returns the address of the function `name` in the library; null if the library is missing or too
// old to have this function.
template <typename Function>
Function* find(In in, const char* name) noexcept {
  try {
    void* handle = both()[static_cast<std::size_t>(in)].handle;
    return handle == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(handle, name));
  } catch (const std::exception&) {  // no memory to load the libraries
    return nullptr;
  }
}

}  // namespace
#endif
}}}  // namespace conn::rdma

// The headers of libibverbs define ibv_query_port and ibv_reg_mr as macros that call inline
// functions. Here the names must denote the functions of the library.
#undef ibv_query_port
#undef ibv_reg_mr

// NOLINTBEGIN(bugprone-macro-parentheses): the parameters are types and lists
#if AECONN_RDMA_LINK
#define FORWARD(library, result, name, parameters, arguments, without) \
  result name##_linked parameters __asm__(#name);                      \
  __attribute__((visibility("hidden"))) result name parameters { return name##_linked arguments; }
#else
#define FORWARD(library, result, name, parameters, arguments, without)            \
  __attribute__((visibility("hidden"))) result name parameters {                  \
    static constinit std::atomic<result(*) parameters> known{nullptr};            \
    auto* call = known.load(std::memory_order_acquire);                           \
    if (call == nullptr) {                                                        \
      call = conn::rdma::find<result parameters>(conn::rdma::In::library, #name); \
      known.store(call, std::memory_order_release);                               \
    }                                                                             \
    if (call != nullptr) return call arguments;                                   \
    errno = ENOSYS;                                                               \
    return without;                                                               \
  }
#endif
// NOLINTEND(bugprone-macro-parentheses)
#define VERBS_POINTER(type, name, parameters, arguments) \
  FORWARD(kVerbs, type*, name, parameters, arguments, nullptr)
#define VERBS_INT(name, parameters, arguments) \
  FORWARD(kVerbs, int, name, parameters, arguments, ENOSYS)
#define VERBS_VOID(name, parameters, arguments) FORWARD(kVerbs, void, name, parameters, arguments, )
#define VERBS_TEXT(name, parameters, arguments) \
  FORWARD(kVerbs, const char*, name, parameters, arguments, "unknown")
#define CM_INT(name, parameters, arguments) FORWARD(kCm, int, name, parameters, arguments, -1)
#define CM_VOID(name, parameters, arguments) FORWARD(kCm, void, name, parameters, arguments, )

extern "C" {

// clang-format off
VERBS_INT(ibv_fork_init, (), ())
VERBS_POINTER(ibv_context, ibv_open_device, (ibv_device* device), (device))
VERBS_INT(ibv_close_device, (ibv_context* device), (device))
VERBS_TEXT(ibv_get_device_name, (ibv_device* device), (device))
VERBS_INT(ibv_query_device, (ibv_context* device, ibv_device_attr* attributes), (device, attributes))
VERBS_INT(ibv_query_port, (ibv_context* device, std::uint8_t port, _compat_ibv_port_attr* attributes), (device, port, attributes))
VERBS_INT(_ibv_query_gid_ex, (ibv_context* device, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry, std::uint32_t flags, std::size_t size), (device, port, index, entry, flags, size))
VERBS_INT(ibv_query_pkey, (ibv_context* device, std::uint8_t port, int index, __be16* pkey), (device, port, index, pkey))
VERBS_INT(ibv_get_async_event, (ibv_context* device, ibv_async_event* event), (device, event))
VERBS_VOID(ibv_ack_async_event, (ibv_async_event* event), (event))
VERBS_TEXT(ibv_event_type_str, (ibv_event_type event), (event))
VERBS_TEXT(ibv_wc_status_str, (ibv_wc_status status), (status))

VERBS_POINTER(ibv_pd, ibv_alloc_pd, (ibv_context* device), (device))
VERBS_INT(ibv_dealloc_pd, (ibv_pd* pd), (pd))
VERBS_POINTER(ibv_mr, ibv_reg_mr, (ibv_pd* pd, void* data, std::size_t size, int access), (pd, data, size, access))
VERBS_POINTER(ibv_mr, ibv_reg_mr_iova2, (ibv_pd* pd, void* data, std::size_t size, std::uint64_t iova, unsigned access), (pd, data, size, iova, access))
VERBS_INT(ibv_dereg_mr, (ibv_mr* mr), (mr))

VERBS_POINTER(ibv_comp_channel, ibv_create_comp_channel, (ibv_context* device), (device))
VERBS_INT(ibv_destroy_comp_channel, (ibv_comp_channel* channel), (channel))
VERBS_POINTER(ibv_cq, ibv_create_cq, (ibv_context* device, int entries, void* user, ibv_comp_channel* channel, int vector), (device, entries, user, channel, vector))
VERBS_INT(ibv_destroy_cq, (ibv_cq* cq), (cq))
VERBS_INT(ibv_get_cq_event, (ibv_comp_channel* channel, ibv_cq** cq, void** user), (channel, cq, user))
VERBS_VOID(ibv_ack_cq_events, (ibv_cq* cq, unsigned count), (cq, count))

VERBS_POINTER(ibv_srq, ibv_create_srq, (ibv_pd* pd, ibv_srq_init_attr* attributes), (pd, attributes))
VERBS_INT(ibv_modify_srq, (ibv_srq* srq, ibv_srq_attr* attributes, int mask), (srq, attributes, mask))
VERBS_INT(ibv_destroy_srq, (ibv_srq* srq), (srq))
VERBS_POINTER(ibv_qp, ibv_create_qp, (ibv_pd* pd, ibv_qp_init_attr* attributes), (pd, attributes))
VERBS_INT(ibv_modify_qp, (ibv_qp* qp, ibv_qp_attr* attributes, int mask), (qp, attributes, mask))
VERBS_INT(ibv_query_qp, (ibv_qp* qp, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* initial), (qp, attributes, mask, initial))
VERBS_INT(ibv_destroy_qp, (ibv_qp* qp), (qp))
VERBS_INT(ibv_query_ece, (ibv_qp* qp, ibv_ece* ece), (qp, ece))
VERBS_INT(ibv_set_ece, (ibv_qp* qp, ibv_ece* ece), (qp, ece))

FORWARD(kCm, rdma_event_channel*, rdma_create_event_channel, (), (), nullptr)
CM_VOID(rdma_destroy_event_channel, (rdma_event_channel* channel), (channel))
CM_INT(rdma_get_cm_event, (rdma_event_channel* channel, rdma_cm_event** event), (channel, event))
CM_INT(rdma_ack_cm_event, (rdma_cm_event* event), (event))
FORWARD(kCm, const char*, rdma_event_str, (rdma_cm_event_type event), (event), "unknown")
FORWARD(kCm, ibv_context**, rdma_get_devices, (int* count), (count), nullptr)
CM_VOID(rdma_free_devices, (ibv_context** list), (list))

CM_INT(rdma_create_id, (rdma_event_channel* channel, rdma_cm_id** id, void* user, rdma_port_space space), (channel, id, user, space))
CM_INT(rdma_destroy_id, (rdma_cm_id* id), (id))
CM_INT(rdma_migrate_id, (rdma_cm_id* id, rdma_event_channel* channel), (id, channel))
CM_INT(rdma_set_option, (rdma_cm_id* id, int level, int name, void* value, std::size_t size), (id, level, name, value, size))
CM_INT(rdma_bind_addr, (rdma_cm_id* id, sockaddr* address), (id, address))
CM_INT(rdma_listen, (rdma_cm_id* id, int backlog), (id, backlog))
CM_INT(rdma_resolve_addr, (rdma_cm_id* id, sockaddr* source, sockaddr* to, int milliseconds), (id, source, to, milliseconds))
CM_INT(rdma_resolve_route, (rdma_cm_id* id, int milliseconds), (id, milliseconds))
CM_INT(rdma_connect, (rdma_cm_id* id, rdma_conn_param* parameters), (id, parameters))
CM_INT(rdma_establish, (rdma_cm_id* id), (id))
CM_INT(rdma_accept, (rdma_cm_id* id, rdma_conn_param* parameters), (id, parameters))
CM_INT(rdma_reject, (rdma_cm_id* id, const void* data, std::uint8_t size), (id, data, size))
CM_INT(rdma_disconnect, (rdma_cm_id* id), (id))
CM_INT(rdma_init_qp_attr, (rdma_cm_id* id, ibv_qp_attr* attributes, int* mask), (id, attributes, mask))
CM_INT(rdma_set_local_ece, (rdma_cm_id* id, ibv_ece* ece), (id, ece))
CM_INT(rdma_get_remote_ece, (rdma_cm_id* id, ibv_ece* ece), (id, ece))
// clang-format on
}
