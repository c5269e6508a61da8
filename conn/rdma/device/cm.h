// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Owners for rdma_cm objects, and connection set-up with queue pairs of our own.
//
// The queue pair is not rdma_cm's (id->qp stays null): so we choose its time-outs and retries
// ourselves, instead of taking what the peer put into its accept (Valkey's allows no
// receiver-not-ready retry), and it lives on a device handle of the loop's own, whose asynchronous
// events then reach the right loop.

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

/// A copy of an rdma_cm event, acknowledged already: nothing of it hangs on the channel.
struct CmEvent {
  rdma_cm_event_type type;
  rdma_cm_id* id;
  rdma_cm_id* listen_id;  ///< CONNECT_REQUEST: where it arrived
  int status;             ///< -errno, or a reject reason
  std::array<std::byte, 256> private_data;
  std::size_t private_data_size;
  std::span<const std::byte> data() const { return {private_data.data(), private_data_size}; }
};

/// Receives the rdma_cm events of one id, which points at it (id->context).
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

/// The event channel of one loop, non-blocking.
class CmChannel {
 public:
  /// Throws VerbsError (ENODEV, ENOENT, EACCES: no RDMA here).
  CmChannel();
  int fd() const noexcept { return channel_->fd; }
  /// Takes the next event and acknowledges it. No value: none now.
  std::optional<CmEvent> next();
  /// Throws VerbsError.
  CmId create_id(void* context);
  /// Makes this the channel of `id`, with its events that nobody has taken yet
  /// (rdma_migrate_id(3)). On the thread that takes the events of the channel it comes from; none
  /// of them may be unacknowledged. The id has to go before this channel does. False: it is where
  /// it was.
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

/// How a queue pair waits, and for how long.
struct QpTimeouts {
  /// How long the peer waits after we had no receive: code of ibv_modify_qp(3); 12 is 0.64 ms.
  std::uint8_t min_rnr_timer = 12;
  /// ACK time-out 4.096 us * 2^n; 14 is 67 ms. With 6 retries a dead path shows after about 0.5-1
  /// s.
  std::uint8_t ack_timeout = 14;
  /// The most of retry_count; some drivers take it for "for ever".
  static constexpr std::uint8_t kMaybeForEver = 7;
  std::uint8_t retry_count = kMaybeForEver - 1;
  std::uint8_t rnr_retry_count = 7;  ///< for ever; our own clocks decide who is dead
};

/// Refuses a request; who sent it reads the first 100 bytes of the reason.
void reject(rdma_cm_id* request, std::string_view why) noexcept;

/// The traffic class of what rdma_cm sends for an id, and of the path that it finds: to be set
/// before it looks for one, or listens. Throws VerbsError.
void set_traffic_class(rdma_cm_id* id, std::uint8_t traffic_class);
/// The MTU of the path that rdma_cm has found, or that the peer asks for; 0: not known.
ibv_mtu mtu_of_path(const rdma_cm_id* id) noexcept;

// The steps of a queue pair's set-up. Throw VerbsError.
void qp_to_init(rdma_cm_id* id, ibv_qp* qp, const Fabric& fabric);
/// What a queue pair is to be.
struct QpWishes {
  QpTimeouts timeouts;
  Fabric fabric;
  ibv_mtu mtu{};            ///< 0: the path's
  bool infiniband = false;  ///< the link layer of its port
};
/// Ready to receive, then to send. Not on iWARP: there the kernel does it with the connection.
/// Returns how its packets travel.
Route qp_to_ready(rdma_cm_id* id, ibv_qp* qp, const QpWishes& wishes);

// Enhanced connection establishment: what both devices can beyond the standard. Nothing happens
// where one of them has none of it.
/// Of a queue pair that connects: what it could do goes into the request.
void offer_ece(rdma_cm_id* id, ibv_qp* qp) noexcept;
/// What the peer offers, or has accepted, before the queue pair is ready to receive.
void take_ece(rdma_cm_id* id, ibv_qp* qp) noexcept;
/// Of a queue pair that accepts and is ready: what it does of that goes into the answer.
inline void answer_ece(rdma_cm_id* id, ibv_qp* qp) noexcept { offer_ece(id, qp); }
/// "0x2c9:3", the vendor and what is on; "" where nothing is.
std::string ece_text(ibv_qp* qp);
/// Ends all traffic: what is posted comes back flushed.
void qp_to_error(ibv_qp* qp) noexcept;

/// Every address this machine has now; empty if it cannot be known.
std::vector<SocketAddress> local_addresses();
/// Makes librdmacm let go of a device that is being removed: it keeps a handle of its own on every
/// device it has met, and for some (rxe) the kernel waits until the last handle is closed.
/// `its_handle` is the `verbs` of an id that still exists. To that end librdmacm opens every other
/// device there is.
void let_go_of_device(ibv_context* its_handle) noexcept;

/// Nothing of a rdma_connect() or rdma_accept() of this id is under way after that. Other events,
/// of an address that changed, say, leave it as it is.
bool ends_connect(const CmEvent& event) noexcept;
/// The peer's kernel takes us for a connection that it still knows (IB CM reject reason 10): with
/// another queue pair it will not.
bool is_stale(const CmEvent& event) noexcept;
/// rdma_cm's word for an event, in ours: "nobody listens there", "the route ...".
std::string describe(const CmEvent& event);

}}}  // namespace conn::rdma
