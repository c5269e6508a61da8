// SPDX-License-Identifier: BSD-3-Clause
// The simulated libibverbs: creation and destruction of objects. Queue pairs are in queue_pairs.cc,
// the calls of the fast path in posts.cc.

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "conn/rdma/device/libraries.h"
#include "tests/simulation/memory.h"
#include "tests/simulation/objects.h"

// verbs.h defines macros with these names that call the functions.
#undef ibv_query_port
#undef ibv_reg_mr

// The simulation is linked in: no libraries have to be loaded.
namespace conn { inline namespace AECONN_ABI { namespace rdma {
std::string missing_libraries() { return {}; }
std::vector<std::string> library_files() { return {}; }
}}}  // namespace conn::rdma

namespace simulation {
namespace {

World& world() { return *World::current(); }

Device& device_of(const ibv_context* context) {
  return static_cast<const Handle*>(context)->device_of();
}

// For calls that return a pointer: false, or true with errno set (return null).
bool fails(const char* call, Device& device, int usual_error) {
  errno = slow_call(device, call, usual_error);
  return errno != 0;
}

std::nullptr_t refuse(int error) {
  errno = error;
  return nullptr;
}

template <class Kind>
int destroyed(Device& device, const char* call, Kind* object, const char* kind) {
  count_slow_call(device, call);
  world().count(kind, -1);
  delete object;
  return 0;
}

int in_use(const char* what) {
  world().violation(std::string(what) + " was destroyed before what uses it");
  return EBUSY;
}

std::uint32_t new_key() { return (world().next_key += 0x100); }

void count_region(Device& device, const Region& region, int change) {
  const std::size_t page = page_size_of(region.addr, region.length);
  const auto begin = reinterpret_cast<std::uintptr_t>(region.addr) / page;
  const auto end =
      (reinterpret_cast<std::uintptr_t>(region.addr) + region.length + page - 1) / page;
  Costs& costs = device.costs;
  costs.registrations += change;
  costs.keys += change;
  costs.translation_entries += change * static_cast<std::int64_t>(end - begin);
  costs.pinned += change * static_cast<std::int64_t>(region.length);
  costs.most_pinned = std::max(costs.most_pinned, costs.pinned);
}

}  // namespace

int slow_call(Device& device, const char* name, int usual_error) {
  ++device.costs.slow[name];
  const int err = world().failing(name, usual_error);
  return err == 0 && device.removed ? EIO : err;
}

void count_slow_call(Device& device, const char* name) {
  ++device.costs.slow[name];
  world().spend_call();
}

Bell::Bell() : fd_(eventfd(0, EFD_CLOEXEC)) {
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}
Bell::~Bell() { close(fd_); }

void Bell::set(bool ringing) noexcept {
  if (std::exchange(ringing_, ringing) == ringing) return;
  std::uint64_t count = 1;
  const ssize_t done = ringing ? write(fd_, &count, sizeof count) : read(fd_, &count, sizeof count);
  if (done != sizeof count) std::abort();
}

int nothing_there(int fd, const char* call) {
  if ((fcntl(fd, F_GETFL) & O_NONBLOCK) == 0)
    world().violation(std::string(call) + " would wait on a descriptor that was left blocking");
  return errno = EAGAIN, -1;
}

Handle::Handle(Device& its_device) : ibv_context{} {
  device = &its_device.base;
  fill_operations(ops);
  async_fd = bell.fd();
  cmd_fd = -1;
  num_comp_vectors = its_device.profile.vectors;
}

Handle::~Handle() = default;

void Handle::raise(ibv_async_event event) {
  events.push_back(event);
  bell.set(true);
}

}  // namespace simulation

using namespace simulation;

extern "C" {

int ibv_fork_init() { return 0; }
const char* ibv_get_device_name(ibv_device* device) { return device->name; }
const char* ibv_wc_status_str(ibv_wc_status status) {
  const Below below;
  return status == IBV_WC_LOC_LEN_ERR ? "local length error" : "simulated failure";
}
const char* ibv_event_type_str(ibv_event_type) { return "simulated event"; }

// --- devices -------------------------------------------------------------------------------------

ibv_context* ibv_open_device(ibv_device* base) {
  const Below below;
  Device& device = Device::of(base);
  if (fails("ibv_open_device", device, ENOMEM)) return nullptr;
  auto* handle = new Handle(device);
  device.handles.push_back(handle);
  world().count("context", 1);
  return handle;
}

int ibv_close_device(ibv_context* context) {
  const Below below;
  auto* handle = static_cast<Handle*>(context);
  Device& device = handle->device_of();
  std::erase(device.handles, handle);
  return destroyed(device, "ibv_close_device", handle, "context");
}

int ibv_query_device(ibv_context* context, ibv_device_attr* out) {
  const Below below;
  Device& device = device_of(context);
  if (fails("ibv_query_device", device, EIO)) return errno;
  const Profile& profile = device.profile;
  *out = {};
  out->vendor_id = profile.vendor_id;
  out->vendor_part_id = profile.part_id;
  out->phys_port_cnt = 1;
  out->max_qp = profile.max_qp != 0 ? profile.max_qp : profile.qp_numbers;
  out->max_qp_wr = profile.max_qp_wr;
  out->max_sge = profile.max_sge;
  out->max_cq = 1 << 16;
  out->max_cqe = profile.max_cqe;
  out->max_mr = 1 << 19;
  out->max_mr_size = ~std::uint64_t{0};
  out->max_mw = profile.allocates_windows ? 1 << 19 : 0;
  out->max_pd = 1 << 19;
  out->max_qp_rd_atom = out->max_qp_init_rd_atom = 16;
  out->max_srq = profile.shared_receives ? 1 << 12 : 0;
  out->max_srq_wr = profile.shared_receives ? profile.max_srq_wr : 0;
  out->max_srq_sge = profile.shared_receives ? 1 : 0;
  out->local_ca_ack_delay = profile.ack_delay;
  if (profile.claims_windows) out->device_cap_flags |= IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  return 0;
}

int ibv_query_port(ibv_context* context, std::uint8_t port, _compat_ibv_port_attr* out) {
  const Below below;
  Device& device = device_of(context);
  if (fails("ibv_query_port", device, EIO)) return errno;
  auto* attributes = reinterpret_cast<ibv_port_attr*>(out);
  const bool up = port <= 1 ? device.link_up : device.other_ports_down.count(port) == 0;
  attributes->state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attributes->active_mtu = device.active_mtu;
  attributes->max_mtu = IBV_MTU_4096;
  attributes->gid_tbl_len = 16;
  attributes->pkey_tbl_len = static_cast<std::uint16_t>(device.pkeys.size());
  attributes->link_layer =
      world().config.infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
  return 0;
}

int _ibv_query_gid_ex(ibv_context* context, std::uint32_t, std::uint32_t index,
                      ibv_gid_entry* entry, std::uint32_t, std::size_t) {
  const Below below;
  Device& device = device_of(context);
  if (fails("ibv_query_gid_ex", device, EIO)) return errno;
  const std::uint32_t own = world().config.infiniband ? IBV_GID_TYPE_IB : IBV_GID_TYPE_ROCE_V2;
  Gid found{{}, own};
  if (const auto more = device.gids.find(index); more != device.gids.end()) {
    found = more->second;
  } else if (index == kAddressGid) {
    in_addr address{};
    inet_pton(AF_INET, device.address.c_str(), &address);
    found.gid = gid_of(address);
  } else if (index == 0) {
    found.gid.raw[0] = 0xfe, found.gid.raw[1] = 0x80, found.gid.raw[15] = 1;
  } else {
    return ENODATA;
  }
  *entry = {};
  entry->gid = found.gid;
  entry->gid_index = index;
  entry->port_num = 1;
  entry->gid_type = found.type;
  return 0;
}

int ibv_query_pkey(ibv_context* context, std::uint8_t, int index, __be16* key) {
  const Below below;
  Device& device = device_of(context);
  if (fails("ibv_query_pkey", device, EIO)) return -1;
  if (index < 0 || static_cast<std::size_t>(index) >= device.pkeys.size())
    return errno = EINVAL, -1;
  *key = htons(device.pkeys[static_cast<std::size_t>(index)]);
  return 0;
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* out) {
  const Below below;
  auto& handle = *static_cast<Handle*>(context);
  world().run_due();
  if (handle.events.empty()) return nothing_there(handle.async_fd, "ibv_get_async_event");
  *out = handle.events.front();
  handle.events.pop_front();
  handle.bell.set(!handle.events.empty());
  return 0;
}
void ibv_ack_async_event(ibv_async_event*) {}

// --- memory --------------------------------------------------------------------------------------

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  const Below below;
  if (fails("ibv_alloc_pd", device_of(context), ENOMEM)) return nullptr;
  auto* domain = new Domain{};
  domain->context = context;
  world().count("pd", 1);
  return domain;
}

int ibv_dealloc_pd(ibv_pd* base) {
  const Below below;
  auto* domain = static_cast<Domain*>(base);
  if (domain->users != 0) return in_use("a protection domain");
  return destroyed(device_of(base->context), "ibv_dealloc_pd", domain, "pd");
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t length, std::uint64_t, unsigned access) {
  const Below below;
  Device& device = device_of(pd->context);
  if (fails("ibv_reg_mr", device, ENOMEM)) return nullptr;
  auto* region = new Region{};
  region->context = pd->context;
  region->pd = pd;
  region->addr = address;
  region->length = length;
  region->lkey = region->rkey = new_key();
  region->access = access;
  world().regions[region->lkey] = region;
  ++static_cast<Domain*>(pd)->users;
  count_region(device, *region, 1);
  world().count("mr", 1);
  return region;
}

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t length, int access) {
  const Below below;
  return ibv_reg_mr_iova2(pd, address, length, reinterpret_cast<std::uintptr_t>(address),
                          static_cast<unsigned>(access));
}

int ibv_dereg_mr(ibv_mr* base) {
  const Below below;
  auto* region = static_cast<Region*>(base);
  Device& device = device_of(base->context);
  if (region->windows != 0) return in_use("a memory region");
  world().regions.erase(region->lkey);
  --static_cast<Domain*>(base->pd)->users;
  count_region(device, *region, -1);
  return destroyed(device, "ibv_dereg_mr", region, "mr");
}

// --- completion queues ---------------------------------------------------------------------------

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  const Below below;
  if (fails("ibv_create_comp_channel", device_of(context), EMFILE)) return nullptr;
  auto* channel = new Channel{};
  channel->context = context;
  channel->fd = channel->bell.fd();
  world().count("channel", 1);
  return channel;
}

int ibv_destroy_comp_channel(ibv_comp_channel* base) {
  const Below below;
  if (base->refcnt != 0) return in_use("a completion channel");
  return destroyed(device_of(base->context), "ibv_destroy_comp_channel",
                   static_cast<Channel*>(base), "channel");
}

static int rounded(int entries, Rounding rounding) {
  const auto wish = static_cast<unsigned>(entries);
  switch (rounding) {
    case Rounding::kPower:
      return static_cast<int>(std::bit_ceil(wish));
    case Rounding::kPowerLessOne:
      return static_cast<int>(std::bit_ceil(wish + 1) - 1);
    default:
      return entries;
  }
}

static void set_depth(Queue& queue, const Profile& profile, int entries) {
  const bool twice = profile.deferred_doorbell && 2 * entries < profile.max_cqe;
  queue.cqe = std::min(rounded(twice ? 2 * entries : entries, profile.cq_depth), profile.max_cqe);
  queue.usable = twice ? queue.cqe / 2 : queue.cqe;
}

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* user, ibv_comp_channel* channel,
                      int vector) {
  const Below below;
  Device& device = device_of(context);
  const Profile& profile = device.profile;
  if (fails("ibv_create_cq", device, ENOMEM)) return nullptr;
  if (entries < 1 || entries > profile.max_cqe) return refuse(EINVAL);
  if (vector < 0 || vector >= profile.vectors) return refuse(profile.wrong_vector);
  auto* queue = new Queue{};
  queue->context = context;
  queue->channel = channel;
  queue->cq_context = user;
  queue->vector = vector;
  set_depth(*queue, profile, entries);
  if (channel != nullptr) ++channel->refcnt;
  world().queues.push_back(queue);
  ++device.costs.completion_queues;
  device.costs.provider_mappings += profile.mappings_cq;
  world().count("cq", 1);
  return queue;
}

int ibv_resize_cq(ibv_cq* base, int entries) {
  const Below below;
  Device& device = device_of(base->context);
  const Profile& profile = device.profile;
  if (profile.resizing == Resizing::kNone) return EOPNOTSUPP;
  if (entries > profile.max_cqe) return EINVAL;
  if (const int err = slow_call(device, "ibv_resize_cq", ENOMEM)) {
    if (profile.resizing == Resizing::kFreesRing)
      world().violation("ibv_resize_cq freed the ring in use when the kernel refused");
    return err;
  }
  set_depth(*static_cast<Queue*>(base), profile, entries);
  return 0;
}

int ibv_destroy_cq(ibv_cq* base) {
  const Below below;
  auto* queue = static_cast<Queue*>(base);
  Device& device = device_of(base->context);
  if (queue->users != 0) return in_use("a completion queue");
  if (queue->owed != 0) world().violation("ibv_destroy_cq waits for unacknowledged events");
  if (auto* channel = static_cast<Channel*>(base->channel)) {
    std::erase(channel->events, queue);
    channel->bell.set(!channel->events.empty());
    --channel->refcnt;
  }
  std::erase(world().queues, queue);
  --device.costs.completion_queues;
  device.costs.provider_mappings -= device.profile.mappings_cq;
  return destroyed(device, "ibv_destroy_cq", queue, "cq");
}

int ibv_get_cq_event(ibv_comp_channel* base, ibv_cq** queue, void** user) {
  const Below below;
  auto& channel = *static_cast<Channel*>(base);
  world().run_due();
  if (channel.events.empty()) {
    ++world().looks_in_vain;
    return nothing_there(channel.fd, "ibv_get_cq_event");
  }
  Queue* next = channel.events.front();
  channel.events.pop_front();
  channel.bell.set(!channel.events.empty());
  ++next->owed;
  *queue = next;
  *user = next->cq_context;
  return 0;
}

void ibv_ack_cq_events(ibv_cq* base, unsigned count) { static_cast<Queue*>(base)->owed -= count; }

// --- shared receive queues -----------------------------------------------------------------------

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes) {
  const Below below;
  Device& device = device_of(pd->context);
  const Profile& profile = device.profile;
  if (!profile.shared_receives) return refuse(EOPNOTSUPP);
  if (fails("ibv_create_srq", device, ENOMEM)) return nullptr;
  if (attributes->attr.max_wr > static_cast<std::uint32_t>(profile.max_srq_wr))
    return refuse(EINVAL);
  auto* shared = new SharedReceives{};
  shared->context = pd->context;
  shared->pd = pd;
  shared->depth = attributes->attr.max_wr;
  ++static_cast<Domain*>(pd)->users;
  ++device.costs.shared_queues;
  device.costs.provider_mappings += profile.mappings_srq;
  world().count("srq", 1);
  return shared;
}

int ibv_modify_srq(ibv_srq* base, ibv_srq_attr* attributes, int mask) {
  const Below below;
  if (const int err = slow_call(device_of(base->context), "ibv_modify_srq", EINVAL)) return err;
  if ((mask & IBV_SRQ_LIMIT) != 0)
    static_cast<SharedReceives*>(base)->limit = attributes->srq_limit;
  return 0;
}

int ibv_destroy_srq(ibv_srq* base) {
  const Below below;
  auto* shared = static_cast<SharedReceives*>(base);
  Device& device = device_of(base->context);
  if (shared->users != 0) return in_use("a shared receive queue");
  // Remaining entries in completion queues no longer name it.
  for (Queue* queue : world().queues)
    for (Completion& entry : queue->entries)
      if (entry.shared == shared) entry.shared = nullptr;
  --static_cast<Domain*>(base->pd)->users;
  --device.costs.shared_queues;
  device.costs.provider_mappings -= device.profile.mappings_srq;
  return destroyed(device, "ibv_destroy_srq", shared, "srq");
}

}  // extern "C"
