// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The objects behind the pointers of libibverbs and librdmacm in the simulation.

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "conn/rdma/device/functions.h"
#include "tests/simulation/costs.h"
#include "tests/simulation/profile.h"
#include "tests/simulation/world.h"

namespace simulation {

/// A descriptor that is readable while something is queued behind it.
class Bell {
 public:
  Bell();
  ~Bell();
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;
  int fd() const noexcept { return fd_; }
  void set(bool ringing) noexcept;

 private:
  int fd_;
  bool ringing_ = false;
};

/// Result of the calls that take an event when there is no event: -1 and EAGAIN.
int nothing_there(int fd, const char* call);

struct Handle;

/// Bits of ibv_modify_qp()'s mask for Ethernet addresses, which older kernels set for any link
/// layer.
constexpr int kEthernetBits = 0xe00000;

/// Index of a device's address in its GID table; index 0 is the port's own GID.
constexpr std::uint8_t kAddressGid = 1;
/// ::ffff:a.b.c.d.
ibv_gid gid_of(const in_addr& address);

/// An entry of a GID table.
struct Gid {
  ibv_gid gid;
  std::uint32_t type;  ///< IBV_GID_TYPE_...
};

struct Device {
  ibv_device base{};  // first: ibv_device* is Device*
  std::string address;
  Profile profile;
  Costs costs;
  bool removed = false, link_up = true, address_present = true;
  /// False for a moment on soft-RoCE while its link goes down: its port is still active, requests
  /// fail with LOC_QP_OP_ERR, and a disconnect would break the device.
  bool has_route = true;
  /// librdmacm has opened the device. Set from its first id there until librdmacm looks for devices
  /// after the removal.
  bool cm_holds = false;
  std::set<int> other_ports_down = {};
  ibv_mtu active_mtu = IBV_MTU_1024;
  std::map<std::uint32_t, Gid> gids = {};       ///< beside the port's and its address's GID
  std::vector<std::uint16_t> pkeys = {0xffff};  ///< 0: none at that index
  std::vector<int> near;                        ///< processors, as the kernel's local_cpulist
  std::vector<Handle*> handles;
  std::unique_ptr<Handle> cm_handle;  // opened by rdma_cm itself

  Nanoseconds line_free{0};  ///< when everything it has sent so far is on the wire

  // Numbers of its queue pairs: first_number + [16, 16 + numbers).
  std::uint32_t first_number = 0, next_number = 0, numbers = 0;
  std::size_t live_queue_pairs = 0;
  /// This many requests from here are answered as if their queue pair number had been reused too
  /// soon.
  int stale_answers = 0;
  /// Connections that the device's rdma_cm knows, by the other end: until when it remembers them,
  /// or for ever while they are established.
  std::map<std::pair<const Device*, std::uint32_t>, Nanoseconds> known_peers;

  bool alive() const noexcept { return !removed && link_up; }
  static Device& of(ibv_device* base) noexcept { return *reinterpret_cast<Device*>(base); }
};

struct Handle : ibv_context {
  explicit Handle(Device& its_device);
  ~Handle();
  void raise(ibv_async_event event);
  Device& device_of() const noexcept { return Device::of(device); }
  Bell bell;
  std::deque<ibv_async_event> events;
};

struct Domain : ibv_pd {
  int users = 0;
};

struct Region : ibv_mr {
  unsigned access = 0;
  int windows = 0;
};

struct Window : ibv_mw {
  std::uint32_t key = 0;  // the device's; ibv_mw::rkey is the program's copy
  QueuePair* bound = nullptr;
  Region* region = nullptr;
  std::uint64_t begin = 0, length = 0;
};

struct SharedReceives;

struct Completion {
  ibv_wc wc;
  unsigned frees = 0;                // slots of the send queue
  std::uint64_t owner = 0;           // serial number of its queue pair
  SharedReceives* shared = nullptr;  // the queue that the receive came from
};

struct Queue;
struct Channel : ibv_comp_channel {
  Bell bell;
  std::deque<Queue*> events;
};

struct Queue : ibv_cq {
  void push(const Completion& completion);
  std::deque<Completion> entries;
  int usable = 0;  // number of entries
  int vector = 0;
  bool armed = false, arms_at_poll = false, overrun = false;
  unsigned owed = 0;  // events taken and not acknowledged
  int users = 0;
};

struct Receive {
  std::uint64_t wr_id;
  std::uint64_t address;
  std::uint32_t length, key;
};

struct SharedReceives : ibv_srq {
  std::deque<Receive> posted;
  std::uint32_t depth = 0, limit = 0;
  std::uint32_t unpolled = 0;  // used receives whose slots are free once polled
  int users = 0;
};

struct Request {
  ibv_send_wr work;
  std::vector<ibv_sge> pieces;
  std::uint32_t length;             // of all pieces together
  std::vector<std::byte> inlined;   // inline data, or bytes that a stream has taken
  std::vector<std::byte> gathered;  // the pieces copied together, at each transmission
  std::uint32_t window_key;         // ibv_mw::rkey at the time of the post
  Nanoseconds arrives;
  bool delivered = false, completed = false;
};

struct QueuePair : ibv_qp {
  std::uint64_t serial = 0;
  // The device's state; ibv_qp::state is the one last passed to ibv_modify_qp().
  ibv_qp_state actual = IBV_QPS_RESET;
  /// Its device carries out no request of it and reports nothing, as soft-RoCE at times after its
  /// link was down; the peer's requests are still carried out.
  bool stuck = false;
  /// The next post takes its requests and fails without naming one, as rxe's does if it cannot tell
  /// the kernel.
  bool fails_after_taking = false;
  // The kernel is closing the stream: requests are refused, and none is flushed yet (cxgb4).
  bool closing = false;
  std::deque<Request> requests;  // delivered ones first
  std::deque<Receive> receives;
  ibv_qp_cap cap{};
  std::uint32_t peer = 0;  // queue pair number of the peer
  std::uint32_t used = 0;  // used slots of the send queue; a completion frees those before it
  std::uint32_t unsignaled = 0;
  int retry_count = 7, rnr_retry = 7, ack_timeout = 14, rnr_timer = 0;
  ibv_ah_attr way{};
  ibv_mtu path_mtu = IBV_MTU_256;
  std::uint16_t pkey_index = 0;
  std::uint32_t ece = 0;  // the options in use
  int tries = 0;
  bool pumping = false;
  Nanoseconds last_post{0}, last_arrival{0}, last_ack{0};
  Nanoseconds silent_since{-1};  // stream: since when nothing got through
  bool accepts = false;          // the accepting side (iWARP)
  bool heard = false;            // whether anything has arrived
  std::uint64_t cm = 0;          // key of the connection's id (iWARP)
  std::vector<Window*> windows;  // windows bound to it

  Device& device_of() const noexcept { return Device::of(context->device); }
};

struct CmId;
// Each call does this first: it takes its time, is counted, and may fail. Returns 0 or the error.
int slow_call(Device& device, const char* name, int usual_error);
int slow_call(CmId& id, const char* name, int usual_error);
/// For a call that cannot fail.
void count_slow_call(Device& device, const char* name);

// The fast path (posts.cc).
void fill_operations(ibv_context_ops& operations);

// The network's side of a queue pair (network.cc).
void send(QueuePair& qp, Request request);
std::vector<std::byte> gather(const Request& request);
void ready_to_send(QueuePair& qp);  ///< sends the requests posted so far
void fail(QueuePair& qp);           ///< to ERR: all posted requests complete as flushed
void unbind(Window& window);

struct EventChannel : rdma_event_channel {
  Bell bell;
  std::deque<struct Event*> events;
  std::size_t live = 0;  // how many of them were not called off
};

struct Event : rdma_cm_event {
  std::vector<std::byte> data;
  std::uint64_t owner = 0;  // key of the id it is about
  std::uint64_t child = 0;  // CONNECT_REQUEST: key of the new id
  bool called_off = false;  // one of the two ids was destroyed
};

enum class CmState : std::uint8_t {
  kIdle,
  kBound,
  kResolved,
  kListening,
  kRequested,
  kRequestReceived,
  kAnswered,
  kAnswerReceived,
  kConnected,
  kDisconnecting,
  kDisconnectReceived,
  kOver
};

struct CmId : rdma_cm_id {
  std::uint64_t key = 0;
  CmState state = CmState::kIdle;
  std::uint64_t peer = 0;  // key of the other end's id
  std::uint32_t local_qp = 0;
  std::uint32_t remote_qp = 0;
  std::uint8_t remote_rnr = 7;
  // Properties of the path, determined by the connecting side.
  ibv_mtu path_mtu = IBV_MTU_1024;
  std::uint8_t traffic_class = 0, service_level = 0;
  ibv_sa_path_rec path{};
  ibv_ece local_ece{}, remote_ece{};
  int backlog = 0;
  int owed = 0;                // events taken and not yet acknowledged
  std::vector<Event*> queued;  // events that name it and were not taken yet
  Device* device = nullptr;
  Nanoseconds arrives{};  // iWARP: when its last message arrives
  Costs early;            // costs before it had a device
  EventChannel& events() const noexcept { return *static_cast<EventChannel*>(channel); }
};

// The world's side of rdma_cm (cm_messages.cc).
void device_removed(World& world, Device& device);
void address_moved(World& world, Device& device);
/// iWARP: a queue pair that enters ERR ends its connection.
void stream_broken(QueuePair& qp);

}  // namespace simulation
