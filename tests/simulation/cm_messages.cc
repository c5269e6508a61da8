// SPDX-License-Identifier: BSD-3-Clause
// The messages that set up and end a connection; they may be slow, overtake data, or get lost.
// InfiniBand's and iWARP's, where the connection is a byte stream.

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "tests/simulation/cm.h"

namespace simulation {
namespace {

using namespace cm;

World& world() { return *World::current(); }

// How long rdma_cm remembers the peer of an ended connection.
constexpr Nanoseconds kTimewait = 500ms;

QueuePair* queue_pair(std::uint32_t number) {
  const auto found = world().queue_pairs.find(number);
  return found == world().queue_pairs.end() ? nullptr : found->second;
}

// --- reused queue pair numbers -------------------------------------------------------------------

const Device* owner_of(std::uint32_t qp_number) {
  for (const auto& each : world().devices)
    if (each->first_number >> 18 == qp_number >> 18) return each.get();
  return nullptr;
}

void remember(CmId& id, bool stands) {
  if (id.device == nullptr || is_iwarp(id)) return;
  id.device->known_peers[{owner_of(id.remote_qp), id.remote_qp}] =
      stands ? Nanoseconds::max() : world().now() + kTimewait;
}

// Whether the peer's queue pair number belongs to an earlier connection, as far as this device
// knows.
bool is_stale(CmId& asking, Device& here, std::uint32_t qp_number) {
  if (here.profile.iwarp) return false;
  if (asking.device->stale_answers > 0) return --asking.device->stale_answers >= 0;
  const double part = world().config.weather.stale_requests;
  if (part > 0 && world().chance() < part) return true;
  const auto known = here.known_peers.find({asking.device, qp_number});
  if (known == here.known_peers.end()) return false;
  const bool stale = known->second > world().now();
  here.known_peers.erase(known);
  return stale;
}

// --- a connection's end --------------------------------------------------------------------------

void over(CmId& id) {
  if (id.state == CmState::kConnected || id.state == CmState::kAnswered ||
      id.state == CmState::kDisconnecting || id.state == CmState::kDisconnectReceived)
    remember(id, false);
  id.state = CmState::kOver;
}

void disconnect_arrives(CmId& id) {
  switch (id.state) {
    case CmState::kConnected:
      id.state = CmState::kDisconnectReceived;
      queue_event(id, RDMA_CM_EVENT_DISCONNECTED);
      return;
    case CmState::kAnswered:  // overtook the message that establishes the connection
      after_for(id, world().cm_delay(), [](CmId& same) {
        if (same.state == CmState::kAnswered) same.state = CmState::kConnected;
        disconnect_arrives(same);
      });
      return;
    case CmState::kDisconnecting:  // both ends disconnect at once
      over(id);
      queue_event(id, RDMA_CM_EVENT_DISCONNECTED);
      return;
    default:
      return;
  }
}

bool stream_stands(const CmId& id) {
  return id.state == CmState::kConnected || id.state == CmState::kDisconnecting;
}

// A stream has ended: the kernel moves the queue pair to ERR and reports it once.
void stream_ended(CmId& id) {
  if (!stream_stands(id)) return;
  id.state = CmState::kOver;
  if (QueuePair* qp = queue_pair(id.local_qp); qp != nullptr && qp->cm == id.key) fail(*qp);
  queue_event(id, RDMA_CM_EVENT_DISCONNECTED);
}

// The peer closed in order; so does this end.
void stream_closes(CmId& id) {
  if (!stream_stands(id)) return;
  tell(id, id.peer, stream_ended);
  stream_ended(id);
}

// --- set-up --------------------------------------------------------------------------------------

void answer_arrives(CmId& id, std::uint64_t from, std::uint32_t qp, std::uint8_t rnr,
                    const ibv_ece& ece, const std::vector<std::byte>& data) {
  if (id.state != CmState::kRequested) return;
  id.remote_ece = ece;
  id.state = CmState::kAnswerReceived;
  id.remote_qp = qp;
  id.remote_rnr = rnr;
  if (is_iwarp(id)) {
    id.peer = from;
    id.state = CmState::kConnected;
    if (join_stream(id)) return queue_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, data);
    id.state = CmState::kOver;
    return queue_event(id, RDMA_CM_EVENT_CONNECT_ERROR, -EINVAL);
  }
  remember(id, true);
  if (id.qp == nullptr) return queue_event(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, data);
  modify(&id, IBV_QPS_RTR);
  modify(&id, IBV_QPS_RTS);
  id.state = CmState::kConnected;
  tell(id, id.peer, established);
  queue_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, data);
}

void request_arrives(CmId& listener, CmId& asking, const rdma_conn_param& parameters,
                     const std::vector<std::byte>& data) {
  CmId* child = new_id(listener.channel, listener.context);
  bind_to(*child, *device_at(destination(asking).sin_addr));
  source(*child) = destination(asking);
  destination(*child) = source(asking);
  child->state = CmState::kRequestReceived;
  child->peer = asking.key;
  child->remote_qp = parameters.qp_num;
  child->remote_rnr = parameters.rnr_retry_count;
  child->traffic_class = asking.traffic_class;
  child->remote_ece = asking.local_ece;
  found_path(*child, asking.path_mtu);
  asking.peer = child->key;
  remember(*child, true);
  queue_event(listener, RDMA_CM_EVENT_CONNECT_REQUEST, 0, data, child);
}

}  // namespace

namespace cm {

bool join_stream(CmId& id) {
  QueuePair* qp = queue_pair(id.local_qp);
  if (qp == nullptr || (qp->actual != IBV_QPS_INIT && qp->actual != IBV_QPS_RTR)) return false;
  constexpr int kSoon = 12;  // RNR timer code: the default of iWARP, 0.64 ms
  qp->peer = id.remote_qp;
  qp->rnr_timer = kSoon;
  qp->cm = id.key;
  qp->actual = IBV_QPS_RTS;
  ready_to_send(*qp);
  return true;
}

void established(CmId& id) {
  if (id.state != CmState::kAnswered) return;
  id.state = CmState::kConnected;
  queue_event(id, RDMA_CM_EVENT_ESTABLISHED);
}

void send_request(std::uint64_t key, const rdma_conn_param& parameters,
                  const std::vector<std::byte>& data) {
  CmId* id = find(key);
  if (id == nullptr || id->state != CmState::kRequested || id->device == nullptr) return;
  const sockaddr_in target = destination(*id);
  Device* there = device_at(target.sin_addr);
  // Without an answer the request is repeated until the kernel gives up.
  if (there == nullptr || !world().path_open(*id->device, *there)) return;
  // Different transports do not interoperate.
  CmId* listener =
      there->profile.iwarp == id->device->profile.iwarp ? listener_at(target, there) : nullptr;
  const bool stale = listener != nullptr && is_stale(*id, *there, parameters.qp_num);
  if (listener != nullptr && !stale) return request_arrives(*listener, *id, parameters, data);
  id->state = CmState::kOver;
  const int reason = stale ? kStaleConnection : kNoListener;
  queue_event(*id, RDMA_CM_EVENT_REJECTED, is_iwarp(*id) ? -ECONNREFUSED : reason);
}

void send_answer(CmId& id, const rdma_conn_param& parameters, const std::vector<std::byte>& data) {
  const auto answer = [=, from = id.key, qp = id.local_qp, rnr = parameters.rnr_retry_count,
                       ece = id.local_ece](CmId& peer) {
    answer_arrives(peer, from, qp, rnr, ece, data);
  };
  if (!is_iwarp(id)) {
    id.state = CmState::kAnswered;
    return tell(id, id.peer, answer);
  }
  // iWARP: connected before the peer has received the answer.
  id.state = CmState::kConnected;
  tell(id, id.peer, answer);
  after_for(id, 1us, [](CmId& same) {
    if (same.state == CmState::kConnected) queue_event(same, RDMA_CM_EVENT_ESTABLISHED);
  });
}

void say_reject(CmId& id, const std::vector<std::byte>& data) {
  over(id);
  tell(id, id.peer, [=](CmId& peer) {
    if (peer.state != CmState::kRequested && peer.state != CmState::kAnswered &&
        peer.state != CmState::kAnswerReceived)
      return;
    over(peer);
    queue_event(peer, RDMA_CM_EVENT_REJECTED, is_iwarp(peer) ? -ECONNREFUSED : kByConsumer, data);
  });
}

void start_disconnect(CmId& id) {
  id.state = CmState::kDisconnecting;
  tell(id, id.peer, disconnect_arrives);
  after_for(id, kGivesUp, [](CmId& same) {
    if (same.state != CmState::kDisconnecting) return;
    over(same);
    queue_event(same, RDMA_CM_EVENT_DISCONNECTED, -ETIMEDOUT);
  });
}

void answer_disconnect(CmId& id) {
  over(id);
  tell(id, id.peer, [](CmId& peer) {
    if (peer.state != CmState::kDisconnecting) return;
    over(peer);
    queue_event(peer, RDMA_CM_EVENT_DISCONNECTED);
    after_for(peer, 200ms, [](CmId& same) { queue_event(same, RDMA_CM_EVENT_TIMEWAIT_EXIT); });
  });
}

void close_stream(CmId& id) {
  id.state = CmState::kDisconnecting;
  const QueuePair* qp = queue_pair(id.local_qp);
  const bool under_way = qp != nullptr && qp->cm == id.key && qp->actual == IBV_QPS_RTS &&
                         std::any_of(qp->requests.begin(), qp->requests.end(),
                                     [](const Request& each) { return !each.delivered; });
  if (!under_way) return tell(id, id.peer, stream_closes);
  after_for(id, 100us, [](CmId& same) {
    if (same.state == CmState::kDisconnecting) close_stream(same);
  });
}

void leave(CmId& id) {
  switch (id.state) {
    case CmState::kRequested:
    case CmState::kRequestReceived:
    case CmState::kAnswered:
    case CmState::kAnswerReceived:
      return say_reject(id, {});
    case CmState::kConnected:
      if (is_iwarp(id)) return tell(id, id.peer, stream_ended);
      remember(id, false);
      return tell(id, id.peer, disconnect_arrives);
    case CmState::kDisconnectReceived:
      return answer_disconnect(id);
    case CmState::kDisconnecting:
      if (is_iwarp(id)) return tell(id, id.peer, stream_ended);
      return remember(id, false);
    default:
      return;
  }
}

}  // namespace cm

void stream_broken(QueuePair& qp) {
  CmId* id = find(std::exchange(qp.cm, 0));
  if (id == nullptr || !stream_stands(*id)) return;
  tell(*id, id->peer, stream_ended);
  id->state = CmState::kOver;
  after_for(*id, world().cm_delay(),
            [](CmId& same) { queue_event(same, RDMA_CM_EVENT_DISCONNECTED); });
}

void device_removed(World& room, Device& device) {
  for (const auto& [key, id] : std::map(room.ids)) {
    if (find(key) == nullptr || id->device != &device) continue;
    if (id->state == CmState::kConnected || id->state == CmState::kAnswered)
      if (CmId* peer = find(id->peer); peer != nullptr && peer->device != &device)
        after_for(*peer, world().cm_delay(),
                  device.profile.iwarp ? stream_ended : disconnect_arrives);
    id->state = CmState::kOver;
    queue_event(*id, RDMA_CM_EVENT_DEVICE_REMOVAL);
  }
}

void address_moved(World& room, Device& device) {
  for (const auto& [key, id] : std::map(room.ids))
    if (find(key) != nullptr && id->device == &device && id->state != CmState::kOver)
      queue_event(*id, RDMA_CM_EVENT_ADDR_CHANGE);
}

}  // namespace simulation
