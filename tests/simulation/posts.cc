// SPDX-License-Identifier: BSD-3-Clause
// The calls of the fast path, which verbs.h reaches through the context's table: what each driver
// checks, in which order, and what it returns.

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "tests/simulation/memory.h"
#include "tests/simulation/objects.h"
#include "tests/simulation/posts.h"

namespace simulation {

std::function<void(QueuePair&, const ibv_send_wr&)> before_post;

namespace {

World& world() { return *World::current(); }

Device& device_of(const ibv_context* context) {
  return static_cast<const Handle*>(context)->device_of();
}

// --- completions ---------------------------------------------------------------------------------

// Whether the entry is visible to the program.
bool shows(const Profile& profile, const Completion& entry) {
  const auto found = world().queue_pairs.find(entry.wc.qp_num);
  const bool has_owner = found != world().queue_pairs.end() && found->second->serial == entry.owner;
  if (has_owner) {
    QueuePair& qp = *found->second;
    qp.used -= std::min(qp.used, entry.frees);
    return true;
  }
  switch (profile.leftovers) {
    case Leftovers::kDroppedByNumber:
      return found != world().queue_pairs.end();
    case Leftovers::kDangling:
      world().violation("an entry of a shared queue was polled after its queue pair had gone");
      return false;
    default:
      return true;
  }
}

int poll_cq(ibv_cq* base, int size, ibv_wc* out) {
  const Below below;
  auto& queue = *static_cast<Queue*>(base);
  Device& device = device_of(base->context);
  ++device.costs.polls;
  if (world().failing("ibv_poll_cq", EIO) != 0) return -1;
  if (device.removed) return 0;
  if (std::exchange(queue.arms_at_poll, false)) queue.armed = true;
  int count = 0;
  while (count < size && !queue.entries.empty()) {
    const Completion next = queue.entries.front();
    queue.entries.pop_front();
    if (next.shared != nullptr) --next.shared->unpolled;
    if (shows(device.profile, next)) out[count++] = next.wc;
  }
  return count;
}

int req_notify_cq(ibv_cq* base, int) {
  const Below below;
  ++device_of(base->context).costs.notifications;
  if (const int err = world().failing("ibv_req_notify_cq", EIO)) return err;
  auto& queue = *static_cast<Queue*>(base);
  (device_of(base->context).profile.arms_at_poll ? queue.arms_at_poll : queue.armed) = true;
  return 0;
}

// --- memory windows ------------------------------------------------------------------------------

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  const Below below;
  Device& device = device_of(pd->context);
  if (!device.profile.allocates_windows) return errno = EOPNOTSUPP, nullptr;
  if ((errno = slow_call(device, "ibv_alloc_mw", ENOMEM)) != 0) return nullptr;
  auto* window = new Window{};
  window->context = pd->context;
  window->pd = pd;
  window->type = type;
  window->rkey = window->key = (world().next_key += 0x100);
  ++static_cast<Domain*>(pd)->users;
  ++device.costs.keys;
  world().count("mw", 1);
  return window;
}

int dealloc_mw(ibv_mw* base) {
  const Below below;
  auto* window = static_cast<Window*>(base);
  Device& device = device_of(base->context);
  count_slow_call(device, "ibv_dealloc_mw");
  unbind(*window);
  --static_cast<Domain*>(base->pd)->users;
  --device.costs.keys;
  world().count("mw", -1);
  delete window;
  return 0;
}

// --- receives ------------------------------------------------------------------------------------

ibv_wc flushed(const QueuePair& qp, std::uint64_t wr_id) {
  ibv_wc completion{};
  completion.wr_id = wr_id;
  completion.status = IBV_WC_WR_FLUSH_ERR;
  completion.opcode = IBV_WC_RECV;
  completion.qp_num = qp.qp_num;
  return completion;
}

template <class Post>
int post_receives(Device& device, ibv_recv_wr* work, ibv_recv_wr** bad, std::size_t room,
                  bool names_bad, Post post) {
  if (work != nullptr && room != 0) ++device.costs.doorbells;
  for (; work != nullptr; work = work->next) {
    if (room-- == 0) {
      if (names_bad) *bad = work;
      return device.profile.full_receives;
    }
    post(Receive{work->wr_id, work->sg_list->addr, work->sg_list->length, work->sg_list->lkey});
  }
  return 0;
}

int post_recv(ibv_qp* base, ibv_recv_wr* work, ibv_recv_wr** bad) {
  const Below below;
  auto& qp = *static_cast<QueuePair*>(base);
  Device& device = qp.device_of();
  const Profile& profile = device.profile;
  if (world().failing("ibv_post_recv", ENOMEM) != 0) return *bad = work, profile.full_receives;
  const bool broken =
      qp.closing || (profile.error_by_state ? base->state : qp.actual) == IBV_QPS_ERR;
  if (broken && profile.in_error != 0) return *bad = work, profile.in_error;
  if (qp.actual == IBV_QPS_RESET && profile.too_early != TooEarly::kTaken)
    return *bad = profile.too_early == TooEarly::kRefused ? work : nullptr, EINVAL;
  const std::size_t room = qp.cap.max_recv_wr - qp.receives.size();
  return post_receives(device, work, bad, room, true, [&](const Receive& receive) {
    if (qp.actual != IBV_QPS_ERR) return qp.receives.push_back(receive);
    static_cast<Queue*>(qp.recv_cq)->push({flushed(qp, receive.wr_id), 0, qp.serial});
  });
}

int post_srq_recv(ibv_srq* base, ibv_recv_wr* work, ibv_recv_wr** bad) {
  const Below below;
  auto& shared = *static_cast<SharedReceives*>(base);
  Device& device = device_of(base->context);
  const Profile& profile = device.profile;
  if (world().failing("ibv_post_srq_recv", ENOMEM) != 0) return *bad = work, profile.full_receives;
  const std::size_t taken = shared.posted.size() + shared.unpolled;
  const std::size_t room = shared.depth - std::min<std::size_t>(taken, shared.depth);
  return post_receives(device, work, bad, room, room != 0 || profile.full_shared_names_bad,
                       [&](const Receive& receive) { shared.posted.push_back(receive); });
}

// --- sends ---------------------------------------------------------------------------------------

bool is_of_windows(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_BIND_MW || opcode == IBV_WR_LOCAL_INV;
}

std::uint32_t length_of(const ibv_send_wr& work) {
  std::uint32_t length = 0;
  for (int i = 0; i < work.num_sge; ++i) length += work.sg_list[i].length;
  return length;
}

// Checks that a driver makes without asking the device. Returns 0 or the driver's result.
int refusal(const QueuePair& qp, const ibv_send_wr& work) {
  const Profile& profile = qp.device_of().profile;
  const bool immediate =
      work.opcode == IBV_WR_RDMA_WRITE_WITH_IMM || work.opcode == IBV_WR_SEND_WITH_IMM;
  const bool unknown =
      (is_of_windows(work.opcode) && !profile.binds_windows) || (immediate && !profile.immediate);
  const int room = qp.used >= qp.cap.max_send_wr ? profile.full : 0;
  if (profile.room_before_opcode && room != 0) return room;
  if (unknown) return profile.bad_opcode;
  if (work.opcode == IBV_WR_BIND_MW) {
    if (profile.key_changes_at_post)
      work.bind_mw.mw->rkey = (work.bind_mw.mw->rkey & ~0xffu) | (work.bind_mw.rkey & 0xffu);
    if (work.num_sge != 0) return EINVAL;
  }
  if (work.num_sge > static_cast<int>(qp.cap.max_send_sge)) return profile.bad_opcode;
  if ((work.send_flags & IBV_SEND_INLINE) != 0 && length_of(work) > qp.cap.max_inline_data)
    return profile.inline_too_long;
  return room;
}

void take(QueuePair& qp, const ibv_send_wr& work) {
  Device& device = qp.device_of();
  if (work.opcode == IBV_WR_BIND_MW && !device.profile.claims_windows)
    world().violation("a window is bound on a device that does not claim that it can");
  ++qp.used;
  ++device.costs.requests;
  Request request{work, {}, length_of(work), {}, {}, {}, {}, false, false};
  if (work.num_sge > 0) request.pieces.assign(work.sg_list, work.sg_list + work.num_sge);
  if (work.opcode == IBV_WR_BIND_MW) {
    request.window_key = device.profile.key_changes_at_post
                             ? static_cast<Window*>(work.bind_mw.mw)->key
                             : work.bind_mw.mw->rkey;
  }
  if ((work.send_flags & IBV_SEND_INLINE) != 0) {
    request.inlined = gather(request);
    if (device.profile.inline_pieces_overrun && work.num_sge > 1)
      world().violation("inline data of several pieces, which the driver copies beyond its room");
    if (device.profile.inlines_first_piece && work.num_sge > 1)
      std::fill(request.inlined.begin() + work.sg_list[0].length, request.inlined.end(),
                std::byte{0});
  } else if (request.length != 0) {
    ++device.costs.not_inline;
  }
  // RFC 5044, 7.1: data that the accepting side sends before the other end's first message may be
  // lost.
  if (device.profile.iwarp && qp.accepts && !qp.heard && !world().config.strangers)
    world().violation("the accepting side of an iWARP connection sends first");
  send(qp, std::move(request));
}

int post_send(ibv_qp* base, ibv_send_wr* work, ibv_send_wr** bad) {
  const Below below;
  auto& qp = *static_cast<QueuePair*>(base);
  if (before_post) before_post(qp, *work);
  Device& device = qp.device_of();
  const Profile& profile = device.profile;
  if (world().failing("ibv_post_send", ENOMEM) != 0) {
    if (work->opcode == IBV_WR_BIND_MW) (void)refusal(qp, *work);  // has its side effects
    return *bad = work, profile.full;
  }
  const bool broken = (profile.error_by_state ? base->state : qp.actual) == IBV_QPS_ERR;
  if ((broken || qp.closing) && profile.in_error != 0) return *bad = work, profile.in_error;
  const bool early = qp.actual != IBV_QPS_RTS && qp.actual != IBV_QPS_ERR;
  if (early && profile.too_early == TooEarly::kRefused) return *bad = work, EINVAL;
  if (profile.looks_at_first_piece && work->opcode == IBV_WR_RDMA_WRITE &&
      work->sg_list == nullptr && work->next != nullptr && work->next->next == nullptr)
    world().violation(
        "a chain of two begins with a write without pieces, and the driver reads one");
  int result = 0;
  bool taken = false;
  *bad = nullptr;
  for (; work != nullptr; work = work->next) {
    result = refusal(qp, *work);
    if (result != 0) {
      *bad = work;
      break;
    }
    if (profile.length_of_one_before && taken && work->num_sge == 0 && !is_of_windows(work->opcode))
      world().violation("a request without pieces is not the first of its chain");
    take(qp, *work);
    taken = true;
  }
  if (taken) ++device.costs.doorbells;
  if (taken && profile.forgets_refusals) result = 0;
  if (result == 0 && std::exchange(qp.fails_after_taking, false)) return ENOMEM;
  if (early && profile.too_early == TooEarly::kTakenAndRefused) return EINVAL;
  return result;
}

}  // namespace

void fill_operations(ibv_context_ops& operations) {
  operations.poll_cq = poll_cq;
  operations.req_notify_cq = req_notify_cq;
  operations.post_send = post_send;
  operations.post_recv = post_recv;
  operations.post_srq_recv = post_srq_recv;
  operations.alloc_mw = alloc_mw;
  operations.dealloc_mw = dealloc_mw;
}

void Queue::push(const Completion& completion) {
  if (static_cast<int>(entries.size()) >= usable) {
    if (!std::exchange(overrun, true)) world().violation("a completion queue was overrun");
    return;
  }
  entries.push_back(completion);
  if (completion.shared != nullptr) ++completion.shared->unpolled;
  if (!std::exchange(armed, false) || this->channel == nullptr) return;
  ++device_of(this->context).costs.completion_events;
  auto* to = static_cast<Channel*>(this->channel);
  to->events.push_back(this);
  to->bell.set(true);
}

}  // namespace simulation
