#pragma once
// What stands behind the pointers of libibverbs and librdmacm in the simulation.

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

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

struct Handle;

struct Device {
  ibv_device base{};  // first: ibv_device* is Device*
  std::string address;
  bool removed = false, link_up = true, address_present = true;
  std::vector<Handle*> handles;
  std::unique_ptr<Handle> cm_handle;  // rdma_cm's own

  bool alive() const noexcept { return !removed && link_up; }
  static Device& of(ibv_device* base) noexcept { return *reinterpret_cast<Device*>(base); }
};

struct Handle : ibv_context {
  explicit Handle(Device& its_device);
  ~Handle();
  void raise(ibv_async_event event);
  Device* device_of() const noexcept { return &Device::of(device); }
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
  QueuePair* bound = nullptr;
  Region* region = nullptr;
  std::uint64_t begin = 0, length = 0;
};

struct Completion {
  ibv_wc wc;
  unsigned frees = 0;  // slots of the send queue
};

struct Queue;
struct Channel : ibv_comp_channel {
  Bell bell;
  std::deque<Queue*> events;
};

struct Queue : ibv_cq {
  void push(const Completion& completion);
  std::deque<Completion> entries;
  bool armed = false, overrun = false;
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
  int users = 0;
};

struct Request {
  ibv_send_wr work;
  ibv_sge piece;
  std::vector<std::byte> inlined;
  Nanoseconds arrives;
  bool delivered = false;
};

struct QueuePair : ibv_qp {
  std::deque<Request> requests;  // delivered ones first
  std::deque<Receive> receives;
  ibv_qp_cap cap{};
  std::uint32_t peer = 0;  // its number
  std::uint32_t used = 0;  // slots of the send queue; a completion frees those before it
  std::uint32_t unsignaled = 0;
  int retry_count = 7, rnr_retry = 7, ack_timeout = 14, rnr_timer = 0;
  int tries = 0;
  bool pumping = false;
  Nanoseconds last_arrival{0}, last_ack{0};
  std::uint32_t port_space_peer = 0;
  int bound_windows = 0;

  Device& device_of() const noexcept { return Device::of(context->device); }
};

// The network's side of a queue pair (network.cc).
void send(QueuePair& qp, Request request);
void fail(QueuePair& qp);  ///< to ERR: everything posted comes back flushed

struct EventChannel : rdma_event_channel {
  Bell bell;
  std::deque<struct Event*> events;
};

struct Event : rdma_cm_event {
  std::vector<std::byte> data;
  std::uint64_t owner = 0;  // key of the id it is about
  std::uint64_t child = 0;  // CONNECT_REQUEST: the new id
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
  std::uint32_t remote_qp = 0;
  std::uint8_t remote_rnr = 7;
  int backlog = 0;
  int owed = 0;  // events taken and not acknowledged
  Device* device = nullptr;
  EventChannel& events() const noexcept { return *static_cast<EventChannel*>(channel); }
};

// The room's side of rdma_cm (cm.cc).
void device_removed(World& world, Device& device);

}  // namespace simulation
