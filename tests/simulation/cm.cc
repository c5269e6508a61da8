// SPDX-License-Identifier: BSD-3-Clause
// The simulated librdmacm: ids, events, and the immediate effect of each call.

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/simulation/cm.h"
#include "tests/simulation/memory.h"

namespace simulation {
namespace {

World& world() { return *World::current(); }

// For calls that return -1: false, or true with errno set.
bool fails(CmId& id, const char* call, int usual_error) {
  errno = slow_call(id, call, usual_error);
  return errno != 0;
}

void fill_route(const CmId& id, ibv_ah_attr& way) {
  way.port_num = 1;
  way.sl = id.service_level;
  if (world().config.infiniband) {  // one subnet
    way.dlid = 7;
    return;
  }
  way.is_global = 1;
  way.grh.dgid = gid_of(id.route.addr.dst_sin.sin_addr);
  way.grh.sgid_index = kAddressGid;
  way.grh.traffic_class = id.traffic_class;
  way.grh.hop_limit = 64;
}

std::vector<std::byte> private_data(const CmId& id, const void* data, std::size_t size,
                                    std::size_t room) {
  const auto* from = static_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(from, from + size);
  // InfiniBand's messages have a fixed size: missing private data arrives as zeros.
  if (!cm::is_iwarp(id)) bytes.resize(std::max(bytes.size(), room));
  return bytes;
}

}  // namespace

ibv_gid gid_of(const in_addr& address) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  std::memcpy(gid.raw + 12, &address, sizeof address);
  return gid;
}

int slow_call(CmId& id, const char* name, int usual_error) {
  ++(id.device != nullptr ? id.device->costs : id.early).slow[name];
  return world().failing(name, usual_error);
}

namespace cm {

CmId* find(std::uint64_t key) {
  const auto found = world().ids.find(key);
  return found == world().ids.end() ? nullptr : found->second;
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
  for (const auto& [call, count] : id.early.slow) device.costs.slow[call] += count;
  id.early = {};
}

void found_path(CmId& id, ibv_mtu mtu) {
  id.path_mtu = mtu;
  if (is_iwarp(id)) return;
  constexpr std::uint8_t kExactly = 2;
  id.path = {};
  id.path.mtu_selector = kExactly;
  id.path.mtu = static_cast<std::uint8_t>(mtu);
  id.path.traffic_class = id.traffic_class;
  id.route.path_rec = &id.path;
  id.route.num_paths = 1;
}

CmId* listener_at(const sockaddr_in& target, const Device* device) {
  const auto [begin, end] = world().listeners.equal_range(target.sin_port);
  for (auto each = begin; each != end; ++each) {
    CmId* id = each->second;
    const in_addr_t address = source(*id).sin_addr.s_addr;
    const bool there = device == nullptr || id->device == nullptr || id->device == device;
    if (id->state == CmState::kListening && there &&
        (address == INADDR_ANY || address == target.sin_addr.s_addr))
      return id;
  }
  return nullptr;
}

void queue_event(CmId& id, rdma_cm_event_type type, int status, const std::vector<std::byte>& data,
                 CmId* child) {
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
  ++channel.live;
  channel.bell.set(true);
  id.queued.push_back(event);
  if (child != nullptr) child->queued.push_back(event);
  world().count("cm_event", 1);
}

void take_off(Event& event) {
  for (const std::uint64_t key : {event.owner, event.child})
    if (CmId* id = find(key)) std::erase(id->queued, &event);
}

void tell(CmId& from, std::uint64_t to, std::function<void(CmId&)> what) {
  Device* sender = from.device;
  Nanoseconds delay = world().cm_delay();
  if (is_iwarp(from)) {  // a byte stream keeps its order
    from.arrives = std::max(from.arrives, world().now() + delay);
    delay = from.arrives - world().now();
  }
  world().after(delay, [sender, to, what = std::move(what)] {
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

void modify(rdma_cm_id* id, ibv_qp_state state) {
  if (id->qp == nullptr) return;
  ibv_qp_attr attributes{};
  int mask = 0;
  attributes.qp_state = state;
  if (rdma_init_qp_attr(id, &attributes, &mask) == 0) ibv_modify_qp(id->qp, &attributes, mask);
}

}  // namespace cm
}  // namespace simulation

using namespace simulation;
using namespace simulation::cm;

extern "C" {

const char* rdma_event_str(rdma_cm_event_type) { return "simulated rdma_cm event"; }

rdma_event_channel* rdma_create_event_channel() {
  const Below below;
  if (World::current() == nullptr) {
    errno = ENODEV;
    return nullptr;
  }
  if ((errno = world().failing("rdma_create_event_channel", EMFILE)) != 0) return nullptr;
  auto* channel = new EventChannel{};
  channel->fd = channel->bell.fd();
  world().count("cm_channel", 1);
  return channel;
}

void rdma_destroy_event_channel(rdma_event_channel* base) {
  const Below below;
  auto* channel = static_cast<EventChannel*>(base);
  for (Event* event : channel->events) {
    world().count("cm_event", event->called_off ? 0 : -1);
    delete event;
  }
  for (const auto& [key, id] : world().ids)
    if (id->channel == base) world().violation("an event channel goes before its ids");
  world().count("cm_channel", -1);
  delete channel;
}

int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space) {
  const Below below;
  if ((errno = world().failing("rdma_create_id", ENOMEM)) != 0) return -1;
  CmId* made = new_id(channel, context);
  ++made->early.slow["rdma_create_id"];
  *id = made;
  return 0;
}

int rdma_destroy_id(rdma_cm_id* base) {
  const Below below;
  auto* id = static_cast<CmId*>(base);
  if (id->device != nullptr)
    count_slow_call(*id->device, "rdma_destroy_id");
  else
    world().spend_call();
  world().run_due();
  // iWARP's kernel does not destroy an id before its connect has ended.
  while (is_iwarp(*id) && id->state == CmState::kRequested) world().advance(world().now() + 1s);
  if (id->owed != 0) world().violation("rdma_destroy_id waits for unacknowledged events");
  if (id->qp != nullptr) world().violation("rdma_destroy_id before its queue pair");
  if (id->device != nullptr && !id->device->removed) leave(*id);
  std::erase_if(world().listeners, [&](const auto& each) { return each.second == id; });
  EventChannel& channel = id->events();
  std::vector<std::uint64_t> children;
  for (Event* event : std::vector<Event*>(id->queued)) {
    if (event->child != 0 && event->child != id->key) children.push_back(event->child);
    take_off(*event);
    event->called_off = true;
    --channel.live;
    world().count("cm_event", -1);
  }
  channel.bell.set(channel.live != 0);
  world().ids.erase(id->key);
  world().count("cm_id", -1);
  delete id;
  // Pending requests are destroyed with their listener.
  for (const std::uint64_t child : children)
    if (CmId* found = find(child)) rdma_destroy_id(found);
  return 0;
}

int rdma_migrate_id(rdma_cm_id* base, rdma_event_channel* to) {
  const Below below;
  auto& id = *static_cast<CmId*>(base);
  if (fails(id, "rdma_migrate_id", ENODEV)) return -1;
  if (id.owed != 0) world().violation("rdma_migrate_id waits for unacknowledged events");
  EventChannel& from = id.events();
  auto& into = *static_cast<EventChannel*>(to);
  // The kernel moves the events but wakes no thread for them.
  for (Event* event : id.queued) {
    if (event->child != 0 && event->child != id.key)
      world().violation("a listening id moves before its requests were read");
    std::erase(from.events, event);
    into.events.push_back(event);
    --from.live;
    ++into.live;
  }
  from.bell.set(from.live != 0);
  id.channel = to;
  return 0;
}

int rdma_set_option(rdma_cm_id* base, int level, int option, void* value, size_t size) {
  const Below below;
  auto& id = *static_cast<CmId*>(base);
  if (level != RDMA_OPTION_ID || option != RDMA_OPTION_ID_TOS) return 0;
  if (fails(id, "rdma_set_option", EINVAL)) return -1;
  if (size != sizeof id.traffic_class) return errno = EINVAL, -1;
  id.traffic_class = *static_cast<const std::uint8_t*>(value);
  return 0;
}

int rdma_set_local_ece(rdma_cm_id* base, ibv_ece* ece) {
  const Below below;
  auto& id = *static_cast<CmId*>(base);
  if (id.qp != nullptr || ece->vendor_id == 0) return errno = EINVAL, -1;
  id.local_ece = *ece;
  return 0;
}

int rdma_get_remote_ece(rdma_cm_id* base, ibv_ece* ece) {
  const Below below;
  auto& id = *static_cast<CmId*>(base);
  if (id.qp != nullptr) return errno = EINVAL, -1;
  *ece = id.remote_ece;
  return 0;
}

__be16 rdma_get_src_port(rdma_cm_id* id) { return source(*id).sin_port; }
__be16 rdma_get_dst_port(rdma_cm_id* id) { return destination(*id).sin_port; }

int rdma_bind_addr(rdma_cm_id* base, sockaddr* address) {
  const Below below;
  auto& id = *static_cast<CmId*>(base);
  if (fails(id, "rdma_bind_addr", ENOMEM)) return -1;
  sockaddr_in wish{};
  if (address->sa_family != AF_INET) return errno = EAFNOSUPPORT, -1;
  std::memcpy(&wish, address, sizeof wish);
  if (wish.sin_addr.s_addr != INADDR_ANY) {
    Device* device = device_at(wish.sin_addr);
    if (device == nullptr) return errno = ENODEV, -1;
    bind_to(id, *device);
    device->cm_holds = true;
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
  if (fails(id, "rdma_listen", ENOMEM)) return -1;
  id.state = CmState::kListening;
  id.backlog = backlog;
  world().listeners.insert({source(id).sin_port, &id});
  return 0;
}

int rdma_resolve_addr(rdma_cm_id* base, sockaddr* from, sockaddr* to, int milliseconds) {
  const Below below;
  auto& id = *static_cast<CmId*>(base);
  if (fails(id, "rdma_resolve_addr", ENODEV)) return -1;
  if (to->sa_family != AF_INET) return errno = EAFNOSUPPORT, -1;
  std::memcpy(&destination(id), to, sizeof(sockaddr_in));
  Device* device = nullptr;
  if (from != nullptr) {
    device = device_at(reinterpret_cast<const sockaddr_in*>(from)->sin_addr);
    if (device == nullptr) return errno = EADDRNOTAVAIL, -1;
  } else {
    // A machine talks to itself through the device that has the address.
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
  if (fails(id, "rdma_resolve_route", ENOMEM)) return -1;
  const int err = world().failing("route resolution", EHOSTUNREACH);
  after_for(id, world().cm_delay(), [=](CmId& same) {
    if (same.state == CmState::kOver) return;
    if (err == 0) found_path(same, same.device->active_mtu);
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
  auto& id = *static_cast<CmId*>(base);
  if (fails(id, "rdma_init_qp_attr", EINVAL)) return -1;
  if (id.device == nullptr || id.device->removed) return errno = ENODEV, -1;
  if (is_iwarp(id)) {  // the kernel sets RTS itself: nothing to modify
    if (id.state == CmState::kOver || id.state == CmState::kDisconnecting)
      return errno = EINVAL, -1;
    attributes->port_num = 1;
    attributes->qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    const bool first = attributes->qp_state == IBV_QPS_INIT || attributes->qp_state == IBV_QPS_RTR;
    *mask = IBV_QP_PORT | (first ? IBV_QP_STATE | IBV_QP_ACCESS_FLAGS : 0);
    return 0;
  }
  *mask = IBV_QP_STATE;
  switch (attributes->qp_state) {
    case IBV_QPS_INIT:
      attributes->port_num = 1;
      attributes->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
      *mask |= IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS;
      break;
    case IBV_QPS_RTR:
      attributes->dest_qp_num = id.remote_qp;
      attributes->path_mtu = id.path_mtu;
      fill_route(id, attributes->ah_attr);
      *mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
      if (world().config.infiniband) *mask |= kEthernetBits;
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
  if (fails(id, "rdma_connect", ENOMEM)) return -1;
  if (id.device == nullptr || id.device->removed) return errno = ENODEV, -1;
  rdma_conn_param copy = *parameters;
  if (id.qp != nullptr) copy.qp_num = id.qp->qp_num;
  if (is_iwarp(id) && world().queue_pairs.count(copy.qp_num) == 0) return errno = EINVAL, -1;
  id.state = CmState::kRequested;
  id.local_qp = copy.qp_num;
  const auto data = private_data(id, parameters->private_data, parameters->private_data_len, 56);
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
  if (fails(id, "rdma_accept", ENOMEM)) return -1;
  if (id.state != CmState::kRequestReceived) return errno = EINVAL, -1;
  id.local_qp = id.qp != nullptr ? id.qp->qp_num : parameters->qp_num;
  if (!is_iwarp(id)) {
    modify(&id, IBV_QPS_RTR);
    modify(&id, IBV_QPS_RTS);
  } else if (!join_stream(id)) {
    return errno = EINVAL, -1;
  } else {
    world().queue_pairs.at(id.local_qp)->accepts = true;
  }
  const std::size_t room = 196;
  send_answer(id, *parameters,
              private_data(id, parameters->private_data, parameters->private_data_len, room));
  return 0;
}

int rdma_establish(rdma_cm_id* base) {
  const Below below;
  auto& id = *static_cast<CmId*>(base);
  if (fails(id, "rdma_establish", EINVAL)) return -1;
  if (id.state != CmState::kAnswerReceived) return errno = EINVAL, -1;
  id.state = CmState::kConnected;
  tell(id, id.peer, established);
  return 0;
}

int rdma_reject(rdma_cm_id* base, const void* data, std::uint8_t size) {
  const Below below;
  auto& id = *static_cast<CmId*>(base);
  if (fails(id, "rdma_reject", EINVAL)) return -1;
  if (id.state != CmState::kRequestReceived && id.state != CmState::kAnswerReceived)
    return errno = EINVAL, -1;
  const auto* from = static_cast<const std::byte*>(data);
  say_reject(id, {from, from + size});
  return 0;
}

int rdma_disconnect(rdma_cm_id* base) {
  const Below below;
  auto& id = *static_cast<CmId*>(base);
  if (fails(id, "rdma_disconnect", EINVAL)) return -1;
  if (id.qp != nullptr && !is_iwarp(id)) fail(*static_cast<QueuePair*>(id.qp));
  if (id.device != nullptr && !id.device->has_route)
    world().violation("rdma_disconnect() through a device without a route");
  if (id.device == nullptr || id.device->removed) return errno = ENODEV, -1;
  if (is_iwarp(id)) {
    if (id.state == CmState::kConnected) close_stream(id);
    return id.state == CmState::kIdle || id.state == CmState::kBound ? (errno = EINVAL, -1) : 0;
  }
  if (id.state == CmState::kConnected)
    start_disconnect(id);
  else if (id.state == CmState::kDisconnectReceived)
    answer_disconnect(id);
  else if (id.state != CmState::kAnswered && id.state != CmState::kOver &&
           id.state != CmState::kDisconnecting)
    return errno = EINVAL, -1;
  return 0;  // the call succeeds without effect before rdma_cm knows of the connection
}

int rdma_get_cm_event(rdma_event_channel* base, rdma_cm_event** out) {
  const Below below;
  auto& channel = *static_cast<EventChannel*>(base);
  world().run_due();
  while (!channel.events.empty() && channel.events.front()->called_off) {
    delete channel.events.front();
    channel.events.pop_front();
  }
  if (channel.events.empty()) return nothing_there(channel.fd, "rdma_get_cm_event");
  Event* event = channel.events.front();
  channel.events.pop_front();
  take_off(*event);
  --channel.live;
  channel.bell.set(channel.live != 0);
  for (const std::uint64_t key : {event->owner, event->child})
    if (const CmId* id = find(key); id != nullptr && id->device != nullptr && !id->device->removed)
      id->device->cm_holds = true;
  if (CmId* owner = find(event->owner)) {
    ++owner->owed;
    ++(owner->device != nullptr ? owner->device->costs : owner->early).slow["rdma_get_cm_event"];
  }
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
  for (const auto& device : world().devices) {
    if (device->removed) continue;
    device->cm_holds = true;
    present.push_back(device->cm_handle.get());
  }
  for (const auto& device : world().devices)
    if (device->removed) device->cm_holds = false;
  auto** list = new ibv_context* [present.size() + 1] {};
  std::copy(present.begin(), present.end(), list);
  if (count != nullptr) *count = static_cast<int>(present.size());
  world().count("device list", 1);
  return list;
}

void rdma_free_devices(ibv_context** list) {
  world().count("device list", -1);
  delete[] list;
}

}  // extern "C"
