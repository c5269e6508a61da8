// librdmacm as the simulation has it: ids, events, and the messages of connection set-up, which may
// be slow, overtake data, or never arrive.

#include <arpa/inet.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/simulation/memory.h"
#include "tests/simulation/objects.h"

#undef ibv_query_port
#undef ibv_reg_mr

namespace simulation {
namespace {

World& world() { return *World::current(); }

// rdma_cm asks again for its messages' answers and then gives up (measured with Linux 6.1).
constexpr Nanoseconds kGivesUp = 102s;

bool fails(const char* call, int usual_error) {
  errno = world().failing(call, usual_error);
  return errno != 0;
}

CmId* find(std::uint64_t key) {
  const auto found = world().ids.find(key);
  return found == world().ids.end() ? nullptr : found->second;
}

sockaddr_in& source(rdma_cm_id& id) { return id.route.addr.src_sin; }
sockaddr_in& destination(rdma_cm_id& id) { return id.route.addr.dst_sin; }

Device* device_at(const in_addr& address) {
  char text[INET_ADDRSTRLEN];
  inet_ntop(AF_INET, &address, text, sizeof text);
  for (const auto& each : world().devices)
    if (!each->removed && each->address_present && each->address == text) return each.get();
  return nullptr;
}

void bind_to(CmId& id, Device& device) {
  id.device = &device;
  id.verbs = device.cm_handle.get();
  id.port_num = 1;
}

void queue_event(CmId& id, rdma_cm_event_type type, int status = 0,
                 const std::vector<std::byte>& data = {}, CmId* child = nullptr) {
  auto* event = new Event{};
  event->event = type;
  event->id = child != nullptr ? child : &id;
  event->listen_id = child != nullptr ? &id : nullptr;
  event->status = status;
  event->owner = id.key;
  event->child = child != nullptr ? child->key : 0;
  event->data = data;
  event->param.conn.private_data = event->data.empty() ? nullptr : event->data.data();
  event->param.conn.private_data_len = static_cast<std::uint8_t>(event->data.size());
  EventChannel& channel = id.events();
  channel.events.push_back(event);
  channel.bell.set(true);
  world().count("cm_event", 1);
}

// A message from one id to another; `what` happens there if both machines still talk.
void tell(CmId& from, std::uint64_t to, std::function<void(CmId&)> what) {
  Device* sender = from.device;
  world().after(world().cm_delay(), [sender, to, what = std::move(what)] {
    CmId* receiver = find(to);
    if (receiver == nullptr || receiver->device == nullptr) return;
    if (sender != nullptr && !world().path_open(*sender, *receiver->device)) return;
    what(*receiver);
  });
}

void after_for(const CmId& id, Nanoseconds delay, std::function<void(CmId&)> what) {
  world().after(delay, [key = id.key, what = std::move(what)] {
    if (CmId* found = find(key); found != nullptr && found->device != nullptr) what(*found);
  });
}

CmId* new_id(rdma_event_channel* channel, void* context) {
  auto* id = new CmId{};
  id->channel = channel;
  id->context = context;
  id->ps = RDMA_PS_TCP;
  id->key = world().next_id++;
  world().ids[id->key] = id;
  world().count("cm_id", 1);
  return id;
}

std::vector<std::byte> private_data(const void* data, std::size_t size, std::size_t room) {
  const auto* from = static_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(from, from + size);
  // InfiniBand's messages have a fixed size: what was not given arrives as zeros.
  if (!world().config.weather.iwarp) bytes.resize(std::max(bytes.size(), room));
  return bytes;
}

void modify(rdma_cm_id* id, ibv_qp_state state) {
  if (id->qp == nullptr) return;
  ibv_qp_attr attributes{};
  int mask = 0;
  attributes.qp_state = state;
  if (rdma_init_qp_attr(id, &attributes, &mask) == 0) ibv_modify_qp(id->qp, &attributes, mask);
}

// --- a connection's end --------------------------------------------------------------------------

void say_reject(CmId& id, int reason, const std::vector<std::byte>& data) {
  tell(id, id.peer, [=](CmId& peer) {
    if (peer.state != CmState::kRequested && peer.state != CmState::kAnswered &&
        peer.state != CmState::kAnswerReceived)
      return;
    peer.state = CmState::kOver;
    queue_event(peer, RDMA_CM_EVENT_REJECTED, reason, data);
  });
}

void disconnect_arrives(CmId& id) {
  switch (id.state) {
    case CmState::kConnected:
      id.state = CmState::kDisconnectReceived;
      queue_event(id, RDMA_CM_EVENT_DISCONNECTED);
      return;
    case CmState::kAnswered:  // it overtook the message that says the connection stands
      after_for(id, world().cm_delay(), [](CmId& same) {
        if (same.state == CmState::kAnswered) same.state = CmState::kConnected;
        disconnect_arrives(same);
      });
      return;
    case CmState::kDisconnecting:  // both at once
      id.state = CmState::kOver;
      queue_event(id, RDMA_CM_EVENT_DISCONNECTED);
      return;
    default:
      return;
  }
}

void start_disconnect(CmId& id) {
  id.state = CmState::kDisconnecting;
  tell(id, id.peer, disconnect_arrives);
  after_for(id, kGivesUp, [](CmId& same) {
    if (same.state != CmState::kDisconnecting) return;
    same.state = CmState::kOver;
    queue_event(same, RDMA_CM_EVENT_DISCONNECTED, -ETIMEDOUT);
  });
}

void answer_disconnect(CmId& id) {
  id.state = CmState::kOver;
  tell(id, id.peer, [](CmId& peer) {
    if (peer.state != CmState::kDisconnecting) return;
    peer.state = CmState::kOver;
    queue_event(peer, RDMA_CM_EVENT_DISCONNECTED);
    after_for(peer, 200ms, [](CmId& same) { queue_event(same, RDMA_CM_EVENT_TIMEWAIT_EXIT); });
  });
}

// What the other side learns when an id goes without a word.
void leave(CmId& id) {
  switch (id.state) {
    case CmState::kRequested:
    case CmState::kRequestReceived:
    case CmState::kAnswered:
    case CmState::kAnswerReceived:
      return say_reject(id, 28, {});
    case CmState::kConnected:
      return tell(id, id.peer, disconnect_arrives);
    case CmState::kDisconnectReceived:
      return answer_disconnect(id);
    default:
      return;
  }
}

// --- set-up --------------------------------------------------------------------------------------

void established(CmId& id) {
  if (id.state != CmState::kAnswered) return;
  id.state = CmState::kConnected;
  queue_event(id, RDMA_CM_EVENT_ESTABLISHED);
}

void answer_arrives(CmId& id, std::uint32_t qp, std::uint8_t rnr,
                    const std::vector<std::byte>& data) {
  if (id.state != CmState::kRequested) return;
  id.state = CmState::kAnswerReceived;
  id.remote_qp = qp;
  id.remote_rnr = rnr;
  const bool stands = world().config.weather.iwarp || id.qp != nullptr;
  if (!stands) return queue_event(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, data);
  modify(&id, IBV_QPS_RTR);
  modify(&id, IBV_QPS_RTS);
  id.state = CmState::kConnected;
  tell(id, id.peer, established);
  queue_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, data);
}

void request_arrives(CmId& listener, std::uint64_t from, sockaddr_in source_address,
                     sockaddr_in target, std::uint32_t qp, std::uint8_t rnr,
                     const std::vector<std::byte>& data) {
  CmId* asking = find(from);
  Device* device = device_at(target.sin_addr);
  if (asking == nullptr || device == nullptr) return;
  CmId* child = new_id(listener.channel, listener.context);
  bind_to(*child, *device);
  source(*child) = target;
  destination(*child) = source_address;
  child->state = CmState::kRequestReceived;
  child->peer = from;
  child->remote_qp = qp;
  child->remote_rnr = rnr;
  asking->peer = child->key;
  queue_event(listener, RDMA_CM_EVENT_CONNECT_REQUEST, 0, data, child);
}

CmId* listener_at(const sockaddr_in& target) {
  for (const auto& [key, id] : world().ids) {
    if (id->state != CmState::kListening || source(*id).sin_port != target.sin_port) continue;
    const in_addr_t address = source(*id).sin_addr.s_addr;
    if (address == INADDR_ANY || address == target.sin_addr.s_addr) return id;
  }
  return nullptr;
}

void send_request(std::uint64_t key, const rdma_conn_param& parameters,
                  const std::vector<std::byte>& data) {
  CmId* id = find(key);
  if (id == nullptr || id->state != CmState::kRequested || id->device == nullptr) return;
  const sockaddr_in target = destination(*id);
  Device* there = device_at(target.sin_addr);
  // Nobody answers: it is asked again until the kernel gives up.
  if (there == nullptr || !world().path_open(*id->device, *there)) return;
  CmId* listener = listener_at(target);
  if (listener == nullptr) {
    id->state = CmState::kOver;
    return queue_event(*id, RDMA_CM_EVENT_REJECTED, 8);
  }
  request_arrives(*listener, key, source(*id), target, parameters.qp_num,
                  parameters.rnr_retry_count, data);
}

}  // namespace

void device_removed(World& room, Device& device) {
  for (const auto& [key, id] : std::map(room.ids)) {
    if (find(key) == nullptr || id->device != &device) continue;
    if (id->state == CmState::kConnected || id->state == CmState::kAnswered)
      if (CmId* peer = find(id->peer); peer != nullptr && peer->device != &device)
        after_for(*peer, world().cm_delay(), disconnect_arrives);
    id->state = CmState::kOver;
    queue_event(*id, RDMA_CM_EVENT_DEVICE_REMOVAL);
  }
}

}  // namespace simulation

using namespace simulation;

extern "C" {

const char* rdma_event_str(rdma_cm_event_type) { return "simulated rdma_cm event"; }

rdma_event_channel* rdma_create_event_channel() {
  const Below below;
  if (World::current() == nullptr) {
    errno = ENODEV;
    return nullptr;
  }
  if (fails("rdma_create_event_channel", EMFILE)) return nullptr;
  auto* channel = new EventChannel{};
  channel->fd = channel->bell.fd();
  world().count("cm_channel", 1);
  return channel;
}

void rdma_destroy_event_channel(rdma_event_channel* base) {
  const Below below;
  auto* channel = static_cast<EventChannel*>(base);
  for (Event* event : channel->events) {
    world().count("cm_event", -1);
    delete event;
  }
  for (const auto& [key, id] : world().ids)
    if (id->channel == base) world().violation("an event channel goes before its ids");
  world().count("cm_channel", -1);
  delete channel;
}

int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space) {
  const Below below;
  if (fails("rdma_create_id", ENOMEM)) return -1;
  *id = new_id(channel, context);
  return 0;
}

int rdma_destroy_id(rdma_cm_id* base) {
  const Below below;
  auto* id = static_cast<CmId*>(base);
  world().spend_call();
  world().run_due();
  if (id->owed != 0) world().violation("rdma_destroy_id waits for unacknowledged events");
  if (id->qp != nullptr) world().violation("rdma_destroy_id before its queue pair");
  if (id->device != nullptr && !id->device->removed) leave(*id);
  world().ids.erase(id->key);
  EventChannel& channel = id->events();
  std::vector<std::uint64_t> children;
  std::erase_if(channel.events, [&](Event* event) {
    if (event->owner != id->key && event->child != id->key) return false;
    if (event->child != 0 && event->child != id->key) children.push_back(event->child);
    world().count("cm_event", -1);
    delete event;
    return true;
  });
  channel.bell.set(!channel.events.empty());
  world().count("cm_id", -1);
  delete id;
  // Requests nobody has seen go with their listener.
  for (const std::uint64_t child : children)
    if (CmId* found = find(child)) rdma_destroy_id(found);
  return 0;
}

int rdma_set_option(rdma_cm_id*, int, int, void*, size_t) { return 0; }

__be16 rdma_get_src_port(rdma_cm_id* id) { return source(*id).sin_port; }
__be16 rdma_get_dst_port(rdma_cm_id* id) { return destination(*id).sin_port; }

int rdma_bind_addr(rdma_cm_id* base, sockaddr* address) {
  const Below below;
  auto& id = *static_cast<CmId*>(base);
  if (fails("rdma_bind_addr", ENOMEM)) return -1;
  sockaddr_in wish{};
  if (address->sa_family != AF_INET) return errno = EAFNOSUPPORT, -1;
  std::memcpy(&wish, address, sizeof wish);
  if (wish.sin_addr.s_addr != INADDR_ANY) {
    Device* device = device_at(wish.sin_addr);
    if (device == nullptr) return errno = ENODEV, -1;
    bind_to(id, *device);
  }
  if (wish.sin_port == 0)
    wish.sin_port = htons(world().next_port++);
  else if (listener_at(wish) != nullptr)
    return errno = EADDRINUSE, -1;
  source(id) = wish;
  id.state = CmState::kBound;
  return 0;
}

int rdma_listen(rdma_cm_id* base, int backlog) {
  const Below below;
  auto& id = *static_cast<CmId*>(base);
  if (fails("rdma_listen", ENOMEM)) return -1;
  id.state = CmState::kListening;
  id.backlog = backlog;
  return 0;
}

int rdma_resolve_addr(rdma_cm_id* base, sockaddr* from, sockaddr* to, int milliseconds) {
  const Below below;
  auto& id = *static_cast<CmId*>(base);
  if (fails("rdma_resolve_addr", ENODEV)) return -1;
  if (to->sa_family != AF_INET) return errno = EAFNOSUPPORT, -1;
  std::memcpy(&destination(id), to, sizeof(sockaddr_in));
  Device* device = nullptr;
  if (from != nullptr) {
    device = device_at(reinterpret_cast<const sockaddr_in*>(from)->sin_addr);
    if (device == nullptr) return errno = EADDRNOTAVAIL, -1;
  } else {
    // To itself a machine talks through the device that has the address.
    device = device_at(destination(id).sin_addr);
    for (const auto& each : world().devices)
      if (device == nullptr && !each->removed && each->address_present) device = each.get();
    if (device == nullptr) return errno = ENODEV, -1;
  }
  bind_to(id, *device);
  source(id).sin_family = AF_INET;
  inet_pton(AF_INET, device->address.c_str(), &source(id).sin_addr);
  source(id).sin_port = htons(world().next_port++);
  Device* there = device_at(destination(id).sin_addr);
  const bool answers = there != nullptr && world().path_open(*device, *there);
  const int err = world().failing("address resolution", EHOSTUNREACH);
  const Nanoseconds delay = answers ? world().cm_delay() : milliseconds * 1ms;
  after_for(id, delay, [=](CmId& same) {
    if (same.state == CmState::kOver) return;
    same.state = CmState::kResolved;
    if (err != 0) return queue_event(same, RDMA_CM_EVENT_ADDR_ERROR, -err);
    queue_event(same, answers ? RDMA_CM_EVENT_ADDR_RESOLVED : RDMA_CM_EVENT_ADDR_ERROR,
                answers ? 0 : -ETIMEDOUT);
  });
  return 0;
}

int rdma_resolve_route(rdma_cm_id* base, int) {
  const Below below;
  auto& id = *static_cast<CmId*>(base);
  if (fails("rdma_resolve_route", ENOMEM)) return -1;
  const int err = world().failing("route resolution", EHOSTUNREACH);
  after_for(id, world().cm_delay(), [=](CmId& same) {
    if (same.state == CmState::kOver) return;
    queue_event(same, err != 0 ? RDMA_CM_EVENT_ROUTE_ERROR : RDMA_CM_EVENT_ROUTE_RESOLVED, -err);
  });
  return 0;
}

int rdma_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attributes) {
  const Below below;
  id->qp = ibv_create_qp(pd, attributes);
  if (id->qp == nullptr) return -1;
  modify(id, IBV_QPS_INIT);
  return 0;
}

void rdma_destroy_qp(rdma_cm_id* id) {
  const Below below;
  ibv_destroy_qp(id->qp);
  id->qp = nullptr;
}

int rdma_init_qp_attr(rdma_cm_id* base, ibv_qp_attr* attributes, int* mask) {
  const Below below;
  const auto& id = *static_cast<CmId*>(base);
  if (fails("rdma_init_qp_attr", EINVAL)) return -1;
  if (id.device == nullptr || id.device->removed) return errno = ENODEV, -1;
  *mask = IBV_QP_STATE;
  switch (attributes->qp_state) {
    case IBV_QPS_INIT:
      attributes->port_num = 1;
      attributes->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
      *mask |= IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS;
      break;
    case IBV_QPS_RTR:
      attributes->dest_qp_num = id.remote_qp;
      *mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
      break;
    default:
      attributes->timeout = 14;
      attributes->retry_cnt = 7;
      attributes->rnr_retry = id.remote_rnr;
      *mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
               IBV_QP_MAX_QP_RD_ATOMIC;
  }
  return 0;
}

int rdma_connect(rdma_cm_id* base, rdma_conn_param* parameters) {
  const Below below;
  auto& id = *static_cast<CmId*>(base);
  if (fails("rdma_connect", ENOMEM)) return -1;
  if (id.device == nullptr || id.device->removed) return errno = ENODEV, -1;
  id.state = CmState::kRequested;
  rdma_conn_param copy = *parameters;
  if (id.qp != nullptr) copy.qp_num = id.qp->qp_num;
  const auto data = private_data(parameters->private_data, parameters->private_data_len, 56);
  world().after(world().cm_delay(), [=, key = id.key] { send_request(key, copy, data); });
  after_for(id, kGivesUp, [](CmId& same) {
    if (same.state != CmState::kRequested) return;
    same.state = CmState::kOver;
    queue_event(same, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
  });
  return 0;
}

int rdma_accept(rdma_cm_id* base, rdma_conn_param* parameters) {
  const Below below;
  auto& id = *static_cast<CmId*>(base);
  if (fails("rdma_accept", ENOMEM)) return -1;
  if (id.state != CmState::kRequestReceived) return errno = EINVAL, -1;
  modify(&id, IBV_QPS_RTR);
  modify(&id, IBV_QPS_RTS);
  id.state = CmState::kAnswered;
  const std::uint32_t qp = id.qp != nullptr ? id.qp->qp_num : parameters->qp_num;
  const auto data = private_data(parameters->private_data, parameters->private_data_len, 196);
  tell(id, id.peer,
       [=, rnr = parameters->rnr_retry_count](CmId& peer) { answer_arrives(peer, qp, rnr, data); });
  return 0;
}

int rdma_establish(rdma_cm_id* base) {
  const Below below;
  auto& id = *static_cast<CmId*>(base);
  if (fails("rdma_establish", EINVAL)) return -1;
  if (id.state != CmState::kAnswerReceived) return errno = EINVAL, -1;
  id.state = CmState::kConnected;
  tell(id, id.peer, established);
  return 0;
}

int rdma_reject(rdma_cm_id* base, const void* data, std::uint8_t size) {
  const Below below;
  auto& id = *static_cast<CmId*>(base);
  if (fails("rdma_reject", EINVAL)) return -1;
  if (id.state != CmState::kRequestReceived && id.state != CmState::kAnswerReceived)
    return errno = EINVAL, -1;
  id.state = CmState::kOver;
  const auto* from = static_cast<const std::byte*>(data);
  say_reject(id, 28, {from, from + size});
  return 0;
}

int rdma_disconnect(rdma_cm_id* base) {
  const Below below;
  auto& id = *static_cast<CmId*>(base);
  if (fails("rdma_disconnect", EINVAL)) return -1;
  if (id.qp != nullptr) fail(*static_cast<QueuePair*>(id.qp));
  if (id.device == nullptr || id.device->removed) return errno = ENODEV, -1;
  if (id.state == CmState::kConnected)
    start_disconnect(id);
  else if (id.state == CmState::kDisconnectReceived)
    answer_disconnect(id);
  else if (id.state != CmState::kAnswered && id.state != CmState::kOver &&
           id.state != CmState::kDisconnecting)
    return errno = EINVAL, -1;
  return 0;  // before rdma_cm knows of the connection it says so, and does nothing
}

int rdma_get_cm_event(rdma_event_channel* base, rdma_cm_event** out) {
  const Below below;
  auto& channel = *static_cast<EventChannel*>(base);
  world().run_due();
  if (channel.events.empty()) {
    errno = EAGAIN;
    return -1;
  }
  Event* event = channel.events.front();
  channel.events.pop_front();
  channel.bell.set(!channel.events.empty());
  if (CmId* owner = find(event->owner)) ++owner->owed;
  *out = event;
  return 0;
}

int rdma_ack_cm_event(rdma_cm_event* base) {
  const Below below;
  auto* event = static_cast<Event*>(base);
  if (CmId* owner = find(event->owner)) --owner->owed;
  world().count("cm_event", -1);
  delete event;
  return 0;
}

ibv_context** rdma_get_devices(int* count) {
  const Below below;
  std::vector<ibv_context*> present;
  for (const auto& device : world().devices)
    if (!device->removed) present.push_back(device->cm_handle.get());
  auto** list = new ibv_context* [present.size() + 1] {};
  std::copy(present.begin(), present.end(), list);
  if (count != nullptr) *count = static_cast<int>(present.size());
  return list;
}

void rdma_free_devices(ibv_context** list) { delete[] list; }

}  // extern "C"
