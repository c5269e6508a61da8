// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Owners of rdma_cm objects, and connection set-up with queue pairs that this library creates.
//
// rdma_cm does not know the queue pair (id->qp stays null). So this library sets its time-outs and
// retries itself instead of using those in the peer's accept (Valkey's accept allows no
// receiver-not-ready retry). The queue pair also lives on the event loop's own device handle, whose
// asynchronous events therefore reach that loop.

#include <unistd.h>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "conn/kit/resolver.h"
#include "conn/rdma/device/fabric.h"
#include "conn/rdma/device/functions.h"
#include "conn/rdma/device/route.h"
#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// A copy of an rdma_cm event. The event itself is already acknowledged, so the copy does not
/// depend on the event channel.
struct CmEvent {
  rdma_cm_event_type type;
  rdma_cm_id* id;
  rdma_cm_id* listen_id;  ///< the listening id, for CONNECT_REQUEST only
  int status;             ///< 0, -errno, or (positive) a reject reason
  std::array<std::byte, 256> private_data;
  std::size_t private_data_size;
  std::span<const std::byte> data() const { return {private_data.data(), private_data_size}; }
};

/// Interface of an object that receives the rdma_cm events of one id, whose `context` points to it.
class CmUser {
 public:
  virtual void on_cm_event(const CmEvent& event) = 0;

 protected:
  ~CmUser() = default;
};

class CmId {
 public:
  CmId() = default;
  explicit CmId(rdma_cm_id* id) : id_(id) {}
  rdma_cm_id* get() const noexcept { return id_.get(); }
  rdma_cm_id* operator->() const noexcept { return id_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(id_); }
  void reset() noexcept { id_.reset(); }
  SocketAddress local() const;
  SocketAddress peer() const;

 private:
  struct Destroy {
    ae::MadeHere made_here;
    void operator()(rdma_cm_id* id) const noexcept;
  };
  std::unique_ptr<rdma_cm_id, Destroy> id_;
};

/// The rdma_cm event channel of one event loop, in non-blocking mode.
class CmChannel {
 public:
  /// Opens the channel. Throws VerbsError; ENODEV, ENOENT and EACCES mean that RDMA is not
  /// available on this machine, or not to this user.
  CmChannel();
  int fd() const noexcept { return channel_->fd; }
  /// Takes the next event and acknowledges it. Returns no value if no event is pending.
  std::optional<CmEvent> next();
  /// Creates an id on this channel. `context` is the CmUser that gets its events, or null. Throws
  /// VerbsError.
  CmId create_id(void* context);
  /// Moves `id` to this channel, together with its pending events (rdma_migrate_id(3)). Call it on
  /// the thread that takes the events of the id's present channel; no event of the id may be taken
  /// but not acknowledged. The id must be destroyed before this channel. Returns false if the id
  /// could not be moved.
  bool take_over(const CmId& id) const noexcept {
    return rdma_migrate_id(id.get(), channel_.get()) == 0;
  }

 private:
  struct Destroy {
    ae::MadeHere made_here;
    void operator()(rdma_event_channel* channel) const noexcept {
      if (made_here.inherited())
        ::close(channel->fd);
      else
        rdma_destroy_event_channel(channel);
    }
  };
  std::unique_ptr<rdma_event_channel, Destroy> channel_;
};

/// Time-outs and retries of a queue pair.
struct QpTimeouts {
  /// How long the peer must wait before it repeats a message for which no receive was posted here.
  /// The value is a code from ibv_modify_qp(3); 12 means 0.64 ms.
  std::uint8_t min_rnr_timer = 12;
  /// The time to wait for the peer's ACK is 4.096 us * 2^n; n = 14 is 67 ms. With 6 retries a dead
  /// path is detected after about 0.5-1 s.
  std::uint8_t ack_timeout = 14;
  /// The largest value of retry_count; some drivers retry for ever with it, so one less is used.
  static constexpr std::uint8_t kMaybeForEver = 7;
  std::uint8_t retry_count = kMaybeForEver - 1;
  /// Number of retries while the peer has no receive posted; 7 means for ever. Dead peers are
  /// detected by this library's own deadlines.
  std::uint8_t rnr_retry_count = 7;
};

/// Rejects a connection request. The first 100 bytes of `why` are sent to the requester.
void reject(rdma_cm_id* request, std::string_view why) noexcept;

/// Sets the traffic class of the packets that rdma_cm sends for an id, and of the path that it
/// finds. Call it before the id resolves a route or listens. Throws VerbsError.
void set_traffic_class(rdma_cm_id* id, std::uint8_t traffic_class);
/// Returns the MTU of the path that rdma_cm has found, or of the path in the peer's request; 0 if
/// it is unknown.
ibv_mtu mtu_of_path(const rdma_cm_id* id) noexcept;

// Moves the queue pair to state INIT, the first step of its set-up. Throws VerbsError.
void qp_to_init(rdma_cm_id* id, ibv_qp* qp, const Fabric& fabric);
/// Requested properties of a queue pair.
struct QpWishes {
  QpTimeouts timeouts;
  Fabric fabric;
  /// MTU to set for the queue pair; 0: the MTU of the path.
  ibv_mtu mtu{};
  /// True if the link layer of the queue pair's port is InfiniBand, not Ethernet.
  bool infiniband = false;
};
/// Moves the queue pair to state RTR (ready to receive), then to RTS (ready to send). Not for
/// iWARP, where the kernel does this when it sets up the connection. Returns how its packets are
/// routed. Throws VerbsError.
Route qp_to_ready(rdma_cm_id* id, ibv_qp* qp, const QpWishes& wishes);

// Enhanced connection establishment (ECE) negotiates device features beyond the standard that both
// devices have. offer_ece(), take_ece() and answer_ece() do nothing if one of the devices has no
// ECE.
/// For the side that connects: puts the features that its device supports into the connect request.
void offer_ece(rdma_cm_id* id, ibv_qp* qp) noexcept;
/// Applies the features that the peer offers or has accepted. Call it before the queue pair is
/// ready to receive.
void take_ece(rdma_cm_id* id, ibv_qp* qp) noexcept;
/// For the side that accepts, once its queue pair is ready: puts the features in use into the
/// answer.
inline void answer_ece(rdma_cm_id* id, ibv_qp* qp) noexcept { offer_ece(id, qp); }
/// Returns the ECE vendor and enabled options as text, such as "0x2c9:0x3"; "" if none are enabled.
std::string ece_text(ibv_qp* qp);
/// Moves the queue pair to the error state, which ends all traffic: posted requests complete as
/// flushed.
void qp_to_error(ibv_qp* qp) noexcept;

/// Returns all IP addresses that this machine has at present; empty if they cannot be read.
std::vector<SocketAddress> local_addresses();
/// Makes librdmacm release a device that is being removed. librdmacm keeps a handle of its own on
/// every device it has met, and for some devices (rxe) the kernel delays the removal until the last
/// handle is closed. `its_handle` is the `verbs` of an id that still exists. As a side effect
/// librdmacm opens every other device.
void let_go_of_device(ibv_context* its_handle) noexcept;

/// True if after this event no rdma_connect() or rdma_accept() of the event's id is in progress.
/// Other events, such as a changed address, do not end one.
bool ends_connect(const CmEvent& event) noexcept;
/// True if the peer's kernel rejected the connect request because it takes it for a connection that
/// still exists there (IB CM reject reason 10). A request with another queue pair is not mistaken
/// for it.
bool is_stale(const CmEvent& event) noexcept;
/// Describes an rdma_cm event for an error message, such as "no RDMA route to the address: ...".
std::string describe(const CmEvent& event);

}}}  // namespace conn::rdma
