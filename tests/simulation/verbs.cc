// libibverbs as the simulation has it: making and destroying objects, and the calls of the fast
// path, which verbs.h reaches through the context's table.

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include "tests/simulation/memory.h"
#include "tests/simulation/objects.h"

// verbs.h hides these names behind macros that call them.
#undef ibv_query_port
#undef ibv_reg_mr

namespace simulation {
namespace {

World& world() { return *World::current(); }

// For calls that return a pointer: null and errno, or go on.
bool fails(const char* call, const Device& device, int usual_error) {
  int err = world().failing(call, usual_error);
  if (err == 0 && device.removed) err = EIO;
  errno = err;
  return err != 0;
}

const Device& device_of(const ibv_context* context) {
  return *static_cast<const Handle*>(context)->device_of();
}

template <class Kind>
int destroyed(Kind* object, const char* kind) {
  world().spend_call();
  world().count(kind, -1);
  delete object;
  return 0;
}

int in_use(const char* what) {
  world().violation(std::string(what) + " was destroyed before what uses it");
  return EBUSY;
}

std::uint32_t new_key() { return (world().next_key += 0x100); }

// --- the fast path -------------------------------------------------------------------------------

int poll_cq(ibv_cq* base, int size, ibv_wc* out) {
  const Below below;
  auto& queue = *static_cast<Queue*>(base);
  if (world().failing("ibv_poll_cq", EIO) != 0) return -1;
  if (device_of(base->context).removed) return 0;
  int count = 0;
  while (count < size && !queue.entries.empty()) {
    const Completion& next = queue.entries.front();
    if (const auto qp = world().queue_pairs.find(next.wc.qp_num); qp != world().queue_pairs.end())
      qp->second->used -= std::min(qp->second->used, next.frees);
    out[count++] = next.wc;
    queue.entries.pop_front();
  }
  return count;
}

int req_notify_cq(ibv_cq* base, int) {
  const Below below;
  if (const int err = world().failing("ibv_req_notify_cq", EIO)) return err;
  static_cast<Queue*>(base)->armed = true;
  return 0;
}

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  const Below below;
  if (fails("ibv_alloc_mw", device_of(pd->context), ENOMEM)) return nullptr;
  auto* window = new Window{};
  window->context = pd->context;
  window->pd = pd;
  window->type = type;
  window->rkey = new_key();
  ++static_cast<Domain*>(pd)->users;
  world().count("mw", 1);
  return window;
}

int dealloc_mw(ibv_mw* base) {
  const Below below;
  auto* window = static_cast<Window*>(base);
  if (window->bound != nullptr) --window->bound->bound_windows;
  if (window->region != nullptr) --window->region->windows;
  world().windows.erase(window->rkey);
  --static_cast<Domain*>(base->pd)->users;
  return destroyed(window, "mw");
}

template <class Post>
int post_receives(ibv_recv_wr* work, ibv_recv_wr** bad, std::size_t room, Post post) {
  for (; work != nullptr; work = work->next) {
    if (room-- == 0) {
      *bad = work;
      return ENOMEM;
    }
    post(Receive{work->wr_id, work->sg_list->addr, work->sg_list->length, work->sg_list->lkey});
  }
  return 0;
}

int post_recv(ibv_qp* base, ibv_recv_wr* work, ibv_recv_wr** bad) {
  const Below below;
  auto& qp = *static_cast<QueuePair*>(base);
  if (const int err = world().failing("ibv_post_recv", ENOMEM)) return *bad = work, err;
  return post_receives(work, bad, qp.cap.max_recv_wr - qp.receives.size(),
                       [&](const Receive& receive) { qp.receives.push_back(receive); });
}

int post_srq_recv(ibv_srq* base, ibv_recv_wr* work, ibv_recv_wr** bad) {
  const Below below;
  auto& shared = *static_cast<SharedReceives*>(base);
  if (const int err = world().failing("ibv_post_srq_recv", ENOMEM)) return *bad = work, err;
  return post_receives(work, bad, shared.depth - shared.posted.size(),
                       [&](const Receive& receive) { shared.posted.push_back(receive); });
}

int post_send(ibv_qp* base, ibv_send_wr* work, ibv_send_wr** bad) {
  const Below below;
  auto& qp = *static_cast<QueuePair*>(base);
  int err = world().failing("ibv_post_send", ENOMEM);
  if (err == 0 && base->state != IBV_QPS_RTS && base->state != IBV_QPS_ERR) err = EINVAL;
  if (err != 0) return *bad = work, err;
  for (; work != nullptr; work = work->next) {
    if (qp.used >= qp.cap.max_send_wr) {
      *bad = work;
      return ENOMEM;
    }
    ++qp.used;
    Request request{*work, {}, {}, {}, false};
    if (work->num_sge > 0) request.piece = work->sg_list[0];
    if ((work->send_flags & IBV_SEND_INLINE) != 0) {
      if (request.piece.length > qp.cap.max_inline_data) {
        *bad = work;
        return EINVAL;
      }
      const auto* from = reinterpret_cast<const std::byte*>(request.piece.addr);
      request.inlined.assign(from, from + request.piece.length);
    }
    send(qp, std::move(request));
  }
  return 0;
}

}  // namespace

// --- objects -------------------------------------------------------------------------------------

Bell::Bell() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}
Bell::~Bell() { close(fd_); }

void Bell::set(bool ringing) noexcept {
  if (std::exchange(ringing_, ringing) == ringing) return;
  std::uint64_t count = 1;
  const ssize_t done = ringing ? write(fd_, &count, sizeof count) : read(fd_, &count, sizeof count);
  if (done != sizeof count) std::abort();
}

Handle::Handle(Device& its_device) : ibv_context{} {
  device = &its_device.base;
  ops.poll_cq = poll_cq;
  ops.req_notify_cq = req_notify_cq;
  ops.post_send = post_send;
  ops.post_recv = post_recv;
  ops.post_srq_recv = post_srq_recv;
  ops.alloc_mw = alloc_mw;
  ops.dealloc_mw = dealloc_mw;
  async_fd = bell.fd();
  cmd_fd = -1;
}

Handle::~Handle() = default;

void Handle::raise(ibv_async_event event) {
  events.push_back(event);
  bell.set(true);
}

void Queue::push(const Completion& completion) {
  if (static_cast<int>(entries.size()) >= cqe) {
    if (!std::exchange(overrun, true)) world().violation("a completion queue was overrun");
    return;
  }
  entries.push_back(completion);
  if (!std::exchange(armed, false) || this->channel == nullptr) return;
  auto* to = static_cast<Channel*>(this->channel);
  to->events.push_back(this);
  to->bell.set(true);
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
  std::erase(handle->device_of()->handles, handle);
  return destroyed(handle, "context");
}

int ibv_query_device(ibv_context* context, ibv_device_attr* out) {
  const Below below;
  if (fails("ibv_query_device", device_of(context), EIO)) return errno;
  const Config& config = world().config;
  *out = {};
  out->max_qp_wr = config.max_qp_wr;
  out->max_cqe = config.max_cqe;
  out->max_srq = config.shared_receives ? 16 : 0;
  out->max_srq_wr = config.max_srq_wr;
  if (config.memory_windows) out->device_cap_flags |= IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  return 0;
}

int ibv_query_port(ibv_context* context, std::uint8_t, _compat_ibv_port_attr* out) {
  const Below below;
  if (fails("ibv_query_port", device_of(context), EIO)) return errno;
  auto* attributes = reinterpret_cast<ibv_port_attr*>(out);
  attributes->state = device_of(context).link_up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  return 0;
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* out) {
  const Below below;
  auto& handle = *static_cast<Handle*>(context);
  world().run_due();
  if (handle.events.empty()) {
    errno = EAGAIN;
    return -1;
  }
  *out = handle.events.front();
  handle.events.pop_front();
  handle.bell.set(!handle.events.empty());
  return 0;
}
void ibv_ack_async_event(ibv_async_event*) {}

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
  return destroyed(domain, "pd");
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t length, std::uint64_t, unsigned access) {
  const Below below;
  if (fails("ibv_reg_mr", device_of(pd->context), ENOMEM)) return nullptr;
  auto* region = new Region{};
  region->context = pd->context;
  region->pd = pd;
  region->addr = address;
  region->length = length;
  region->lkey = region->rkey = new_key();
  region->access = access;
  world().regions[region->lkey] = region;
  ++static_cast<Domain*>(pd)->users;
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
  if (region->windows != 0) return in_use("a memory region");
  world().regions.erase(region->lkey);
  --static_cast<Domain*>(base->pd)->users;
  return destroyed(region, "mr");
}

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
  return destroyed(static_cast<Channel*>(base), "channel");
}

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* user, ibv_comp_channel* channel,
                      int) {
  const Below below;
  if (fails("ibv_create_cq", device_of(context), ENOMEM)) return nullptr;
  auto* queue = new Queue{};
  queue->context = context;
  queue->channel = channel;
  queue->cq_context = user;
  queue->cqe = entries;
  if (channel != nullptr) ++channel->refcnt;
  world().count("cq", 1);
  return queue;
}

int ibv_resize_cq(ibv_cq* base, int entries) {
  const Below below;
  if (const int err = world().failing("ibv_resize_cq", ENOMEM)) return err;
  if (!world().config.resizes) return EOPNOTSUPP;
  base->cqe = entries;
  return 0;
}

int ibv_destroy_cq(ibv_cq* base) {
  const Below below;
  auto* queue = static_cast<Queue*>(base);
  if (queue->users != 0) return in_use("a completion queue");
  if (queue->owed != 0) world().violation("ibv_destroy_cq waits for unacknowledged events");
  if (auto* channel = static_cast<Channel*>(base->channel)) {
    std::erase(channel->events, queue);
    channel->bell.set(!channel->events.empty());
    --channel->refcnt;
  }
  return destroyed(queue, "cq");
}

int ibv_get_cq_event(ibv_comp_channel* base, ibv_cq** queue, void** user) {
  const Below below;
  auto& channel = *static_cast<Channel*>(base);
  world().run_due();
  if (channel.events.empty()) {
    errno = EAGAIN;
    return -1;
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

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes) {
  const Below below;
  if (fails("ibv_create_srq", device_of(pd->context), ENOMEM)) return nullptr;
  auto* shared = new SharedReceives{};
  shared->context = pd->context;
  shared->pd = pd;
  shared->depth = attributes->attr.max_wr;
  ++static_cast<Domain*>(pd)->users;
  world().count("srq", 1);
  return shared;
}

int ibv_modify_srq(ibv_srq* base, ibv_srq_attr* attributes, int mask) {
  const Below below;
  if (const int err = world().failing("ibv_modify_srq", EINVAL)) return err;
  if ((mask & IBV_SRQ_LIMIT) != 0)
    static_cast<SharedReceives*>(base)->limit = attributes->srq_limit;
  return 0;
}

int ibv_destroy_srq(ibv_srq* base) {
  const Below below;
  auto* shared = static_cast<SharedReceives*>(base);
  if (shared->users != 0) return in_use("a shared receive queue");
  --static_cast<Domain*>(base->pd)->users;
  return destroyed(shared, "srq");
}

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* wish) {
  const Below below;
  if (fails("ibv_create_qp", device_of(pd->context), ENOMEM)) return nullptr;
  const Config& config = world().config;
  if (wish->cap.max_inline_data > config.max_inline) {
    errno = EINVAL;
    return nullptr;
  }
  auto* qp = new QueuePair{};
  qp->context = pd->context;
  qp->pd = pd;
  qp->send_cq = wish->send_cq;
  qp->recv_cq = wish->recv_cq;
  qp->srq = wish->srq;
  qp->qp_type = wish->qp_type;
  qp->qp_num = world().next_qp_number++;
  qp->cap = wish->cap;
  ++static_cast<Domain*>(pd)->users;
  ++static_cast<Queue*>(qp->send_cq)->users;
  ++static_cast<Queue*>(qp->recv_cq)->users;
  if (qp->srq != nullptr) ++static_cast<SharedReceives*>(qp->srq)->users;
  world().queue_pairs[qp->qp_num] = qp;
  world().count("qp", 1);
  return qp;
}

int ibv_modify_qp(ibv_qp* base, ibv_qp_attr* attributes, int mask) {
  const Below below;
  auto& qp = *static_cast<QueuePair*>(base);
  const bool to_error = (mask & IBV_QP_STATE) != 0 && attributes->qp_state == IBV_QPS_ERR;
  // Ending works as long as there is a device.
  if (!to_error)
    if (const int err = world().failing("ibv_modify_qp", EINVAL)) return err;
  if (qp.device_of().removed) return EIO;
  if ((mask & IBV_QP_DEST_QPN) != 0) qp.peer = attributes->dest_qp_num;
  if ((mask & IBV_QP_TIMEOUT) != 0) qp.ack_timeout = attributes->timeout;
  if ((mask & IBV_QP_RETRY_CNT) != 0) qp.retry_count = attributes->retry_cnt;
  if ((mask & IBV_QP_RNR_RETRY) != 0) qp.rnr_retry = attributes->rnr_retry;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) qp.rnr_timer = attributes->min_rnr_timer;
  if (to_error)
    fail(qp);
  else if ((mask & IBV_QP_STATE) != 0)
    qp.state = attributes->qp_state;
  return 0;
}

int ibv_destroy_qp(ibv_qp* base) {
  const Below below;
  auto* qp = static_cast<QueuePair*>(base);
  if (qp->bound_windows != 0)
    world().violation("ibv_destroy_qp waits for the memory windows bound to it");
  --static_cast<Domain*>(base->pd)->users;
  --static_cast<Queue*>(base->send_cq)->users;
  --static_cast<Queue*>(base->recv_cq)->users;
  if (base->srq != nullptr) --static_cast<SharedReceives*>(base->srq)->users;
  for (const auto& [key, window] : world().windows)
    if (window->bound == qp) window->bound = nullptr;
  world().queue_pairs.erase(base->qp_num);
  // Some drivers take its completions out of the queues, others leave them.
  if (world().chance() < 0.5)
    for (auto* queue : {static_cast<Queue*>(base->send_cq), static_cast<Queue*>(base->recv_cq)})
      std::erase_if(queue->entries, [&](const Completion& completion) {
        // Receives of a shared queue are its own, whoever they were used for.
        return completion.wc.qp_num == base->qp_num &&
               (base->srq == nullptr || (completion.wc.opcode & IBV_WC_RECV) == 0);
      });
  return destroyed(qp, "qp");
}

}  // extern "C"
