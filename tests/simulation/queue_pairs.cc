// SPDX-License-Identifier: BSD-3-Clause
// libibverbs' queue pairs: what each driver grants, which changes of state it accepts, and what it
// leaves behind.

#include <algorithm>
#include <bit>
#include <cerrno>

#include "tests/simulation/memory.h"
#include "tests/simulation/objects.h"

namespace simulation { namespace {

World& world() { return *World::current(); }

// Overhead of a request with all features that a queue pair can be created with, and its unit
// (mlx5).
constexpr std::uint32_t kRequestOverhead = 192, kRequestUnit = 64, kInlineHeader = 4;
constexpr std::uint32_t kPiece = 16;

std::uint32_t rounded_up(std::uint32_t value, std::uint32_t unit) {
  return (value + unit - 1) / unit * unit;
}

std::uint32_t granted_inline(const Profile& profile, const ibv_qp_cap& wish) {
  const std::uint32_t asked = std::min(wish.max_inline_data, profile.max_inline);
  const std::uint32_t pieces = kPiece * wish.max_send_sge;
  switch (profile.inline_grant) {
    case InlineGrant::kPieces:
      return std::max(asked, pieces);
    case InlineGrant::kRequest: {
      const std::uint32_t data = asked == 0 ? 0 : rounded_up(kInlineHeader + asked, kPiece);
      const std::uint32_t request =
          rounded_up(kRequestOverhead + std::max(data, pieces), kRequestUnit);
      return request - kRequestOverhead - kInlineHeader;
    }
    case InlineGrant::kFixed:
      return asked != 0 ? profile.max_inline : 0;
    case InlineGrant::kAlways:
      return profile.max_inline;
    case InlineGrant::kPower:
      return asked != 0 ? std::min(std::bit_ceil(asked), profile.max_inline) : 0;
    default:
      return asked;
  }
}

std::uint32_t granted_depth(const Profile& profile, std::uint32_t asked) {
  const auto most = static_cast<std::uint32_t>(profile.max_qp_wr);
  if (asked == 0 || profile.queue_depth == Rounding::kNone) return asked;
  const std::uint32_t less = profile.queue_depth == Rounding::kPowerLessOne ? 1 : 0;
  return std::max(asked, std::min(std::bit_ceil(asked + less) - less, most));
}

// The next free number; the range grows with the number of existing queue pairs.
std::uint32_t new_number(Device& device) {
  constexpr std::uint32_t kReserved = 16, kMost = 1 << 17;
  while (device.live_queue_pairs * 2 >= device.numbers && device.numbers < kMost)
    device.numbers *= 2;
  for (;;) {
    const std::uint32_t number =
        device.first_number + kReserved + device.next_number++ % device.numbers;
    if (world().queue_pairs.count(number) == 0) return number;
  }
}

void count_queue_pair(const QueuePair& qp, int change) {
  Device& device = qp.device_of();
  const Profile& profile = device.profile;
  device.live_queue_pairs += static_cast<std::size_t>(change);
  device.costs.queue_pairs += change;
  device.costs.provider_mappings +=
      change * (profile.mappings_qp + (qp.srq == nullptr ? profile.mappings_own_receives : 0));
}

// Checks that this change of state is valid. iWARP's kernel makes the step to RTS itself.
int checked_state(const QueuePair& qp, ibv_qp_state next) {
  const Profile& profile = qp.device_of().profile;
  const ibv_qp_state now = qp.actual;
  if (next == IBV_QPS_ERR || next == IBV_QPS_RESET) return 0;
  if (next == IBV_QPS_INIT) return now == IBV_QPS_RESET || now == IBV_QPS_INIT ? 0 : EINVAL;
  if (profile.iwarp && next == IBV_QPS_RTR && now == IBV_QPS_RTS) return profile.rtr_when_connected;
  if (profile.iwarp && next == IBV_QPS_RTR && now == IBV_QPS_ERR) return 0;
  if (next == IBV_QPS_RTR) return now == IBV_QPS_INIT ? 0 : EINVAL;
  if (next == IBV_QPS_RTS)
    return now == IBV_QPS_RTS || (now == IBV_QPS_RTR && !profile.iwarp) ? 0 : EINVAL;
  return 0;
}

// Checks a path for attributes that the device does not accept.
int refused_way(const Device& device, const ibv_qp_attr& attributes, int mask) {
  const ibv_ah_attr& way = attributes.ah_attr;
  if ((mask & IBV_QP_PKEY_INDEX) != 0 && attributes.pkey_index >= device.pkeys.size())
    return EINVAL;
  if ((mask & IBV_QP_AV) == 0) return 0;
  if (way.sl > device.profile.most_service_level) return EINVAL;
  const std::uint8_t gid = way.grh.sgid_index;
  return way.is_global != 0 && gid > kAddressGid && device.gids.count(gid) == 0 ? EINVAL : 0;
}

void enter(QueuePair& qp, ibv_qp_state next) {
  if (next == IBV_QPS_ERR) return fail(qp);
  const bool no_step = qp.device_of().profile.iwarp && next == IBV_QPS_RTR &&
                       (qp.actual == IBV_QPS_RTS || qp.actual == IBV_QPS_ERR);
  if (!no_step) qp.actual = next;
  if (next == IBV_QPS_RTS) ready_to_send(qp);
}

// Treats the queue pair's entries in a completion queue when it is destroyed.
void drop_entries(QueuePair& qp, Queue& queue) {
  const Leftovers leftovers = qp.device_of().profile.leftovers;
  if (leftovers == Leftovers::kStay || leftovers == Leftovers::kDroppedByNumber) return;
  std::erase_if(queue.entries, [&](const Completion& entry) {
    if (entry.owner != qp.serial) return false;
    if (entry.shared != nullptr && leftovers == Leftovers::kDangling) return false;
    if (entry.shared != nullptr && leftovers == Leftovers::kDropped) --entry.shared->unpolled;
    return true;
  });
}

bool is_of_queue_pair(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return true;
    default:
      return false;
  }
}

}  // namespace
}  // namespace simulation

using namespace simulation;

extern "C" {

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* wish) {
  const Below below;
  Device& device = static_cast<Handle*>(pd->context)->device_of();
  const Profile& profile = device.profile;
  if (!profile.reliable && wish->qp_type == IBV_QPT_RC) return errno = EOPNOTSUPP, nullptr;
  const int before = errno;
  if ((errno = slow_call(device, "ibv_create_qp", ENOMEM)) != 0) return nullptr;
  if (profile.max_qp != 0 && device.live_queue_pairs >= static_cast<std::size_t>(profile.max_qp))
    return errno = ENOMEM, nullptr;
  const auto most = static_cast<std::uint32_t>(profile.max_qp_wr);
  if (wish->cap.max_send_wr > most || (wish->srq == nullptr && wish->cap.max_recv_wr > most))
    return errno = EINVAL, nullptr;
  if (wish->cap.max_send_sge > static_cast<std::uint32_t>(profile.takes_sge()))
    return errno = EINVAL, nullptr;
  if (wish->cap.max_inline_data > profile.max_inline) {
    if (profile.too_much_inline == TooMuchInline::kRefused) return errno = EINVAL, nullptr;
    if (profile.too_much_inline == TooMuchInline::kRefusedMutely) return errno = before, nullptr;
  }
  wish->cap.max_inline_data = granted_inline(profile, wish->cap);
  wish->cap.max_send_wr = granted_depth(profile, wish->cap.max_send_wr);
  wish->cap.max_recv_wr = granted_depth(profile, wish->cap.max_recv_wr);
  auto* qp = new QueuePair{};
  qp->context = pd->context;
  qp->pd = pd;
  qp->send_cq = wish->send_cq;
  qp->recv_cq = wish->recv_cq;
  qp->srq = wish->srq;
  qp->qp_type = wish->qp_type;
  qp->qp_num = new_number(device);
  qp->serial = world().next_serial++;
  qp->cap = wish->cap;
  ++static_cast<Domain*>(pd)->users;
  ++static_cast<Queue*>(qp->send_cq)->users;
  ++static_cast<Queue*>(qp->recv_cq)->users;
  if (qp->srq != nullptr) ++static_cast<SharedReceives*>(qp->srq)->users;
  world().queue_pairs[qp->qp_num] = qp;
  count_queue_pair(*qp, 1);
  world().count("qp", 1);
  return qp;
}

int ibv_modify_qp(ibv_qp* base, ibv_qp_attr* attributes, int mask) {
  const Below below;
  auto& qp = *static_cast<QueuePair*>(base);
  Device& device = qp.device_of();
  const bool has_state = (mask & IBV_QP_STATE) != 0;
  const bool to_error = has_state && attributes->qp_state == IBV_QPS_ERR;
  // The change to ERR succeeds as long as the device exists.
  if (to_error)
    count_slow_call(device, "ibv_modify_qp");
  else if (const int err = slow_call(device, "ibv_modify_qp", EINVAL))
    return err;
  if (device.removed) return EIO;
  if (world().config.infiniband && (mask & kEthernetBits) != 0) return EINVAL;
  if (has_state)
    if (const int err = checked_state(qp, attributes->qp_state)) return err;
  if ((mask & IBV_QP_DEST_QPN) != 0) qp.peer = attributes->dest_qp_num;
  if (const int err = refused_way(device, *attributes, mask)) return err;
  if ((mask & IBV_QP_PKEY_INDEX) != 0) qp.pkey_index = attributes->pkey_index;
  if ((mask & IBV_QP_AV) != 0) qp.way = attributes->ah_attr;
  if ((mask & IBV_QP_PATH_MTU) != 0) qp.path_mtu = attributes->path_mtu;
  if ((mask & IBV_QP_TIMEOUT) != 0) qp.ack_timeout = attributes->timeout;
  if ((mask & IBV_QP_RETRY_CNT) != 0) qp.retry_count = attributes->retry_cnt;
  if ((mask & IBV_QP_RNR_RETRY) != 0) qp.rnr_retry = attributes->rnr_retry;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) qp.rnr_timer = attributes->min_rnr_timer;
  if (!has_state) return 0;
  qp.state = attributes->qp_state;
  enter(qp, attributes->qp_state);
  return 0;
}

int ibv_query_qp(ibv_qp* base, ibv_qp_attr* attributes, int, ibv_qp_init_attr* made) {
  const Below below;
  auto& qp = *static_cast<QueuePair*>(base);
  if (const int err = slow_call(qp.device_of(), "ibv_query_qp", ENOMEM)) return err;
  *attributes = {};
  *made = {};
  attributes->qp_state = qp.closing && qp.actual == IBV_QPS_RTS ? IBV_QPS_SQD : qp.actual;
  attributes->cap = qp.cap;
  attributes->path_mtu = qp.path_mtu;
  const Profile& profile = qp.device_of().profile;
  if (profile.tells_way) attributes->ah_attr = qp.way;
  if (!profile.tells_service_level) attributes->ah_attr.sl = 0;
  return 0;
}

int ibv_query_ece(ibv_qp* base, ibv_ece* ece) {
  const Below below;
  const auto& qp = *static_cast<QueuePair*>(base);
  const Profile& profile = qp.device_of().profile;
  *ece = {};
  if (profile.ece == 0) return EOPNOTSUPP;
  ece->vendor_id = profile.vendor_id;
  // Before options were selected: everything it supports.
  ece->options = qp.actual == IBV_QPS_RTS || qp.ece != 0 ? qp.ece : profile.ece;
  return 0;
}

int ibv_set_ece(ibv_qp* base, ibv_ece* ece) {
  const Below below;
  auto& qp = *static_cast<QueuePair*>(base);
  const Profile& profile = qp.device_of().profile;
  if (profile.ece == 0) return EOPNOTSUPP;
  if (ece->vendor_id != profile.vendor_id || ece->comp_mask != 0) return EINVAL;
  if (qp.actual != IBV_QPS_RESET && qp.actual != IBV_QPS_INIT) return EINVAL;
  qp.ece = ece->options & profile.ece;
  return 0;
}

int ibv_destroy_qp(ibv_qp* base) {
  const Below below;
  auto* qp = static_cast<QueuePair*>(base);
  Device& device = qp->device_of();
  count_slow_call(device, "ibv_destroy_qp");
  if (!qp->windows.empty())
    world().violation("ibv_destroy_qp waits for the memory windows bound to it");
  for (Window* window : qp->windows) window->bound = nullptr;
  // A byte stream is cut when its queue pair is destroyed.
  if (device.profile.iwarp && qp->actual == IBV_QPS_RTS) fail(*qp);
  --static_cast<Domain*>(base->pd)->users;
  --static_cast<Queue*>(base->send_cq)->users;
  --static_cast<Queue*>(base->recv_cq)->users;
  if (base->srq != nullptr) --static_cast<SharedReceives*>(base->srq)->users;
  world().queue_pairs.erase(base->qp_num);
  // The kernel forgets events of the queue pair that nobody has read (ib_uverbs_release_uevent()).
  auto& handle = *static_cast<Handle*>(base->context);
  std::erase_if(handle.events, [&](const ibv_async_event& each) {
    return is_of_queue_pair(each.event_type) && each.element.qp == base;
  });
  handle.bell.set(!handle.events.empty());
  drop_entries(*qp, *static_cast<Queue*>(base->send_cq));
  if (base->recv_cq != base->send_cq) drop_entries(*qp, *static_cast<Queue*>(base->recv_cq));
  count_queue_pair(*qp, -1);
  world().count("qp", -1);
  delete qp;
  return 0;
}

}  // extern "C"
