// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Owners of rdma_cm objects (ids and event channels), and functions that interpret rdma_cm events.

#include <unistd.h>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "conn/kit/resolver.h"
#include "conn/rdma/device/functions.h"
#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// A copy of an rdma_cm event. The event itself is already acknowledged, so the copy does not
/// depend on the event channel.
struct CmEvent {
  rdma_cm_event_type type;
  rdma_cm_id* id;
  rdma_cm_id* listen_id;  ///< id of the listener that got the request; set only for CONNECT_REQUEST
  int status;  ///< 0 for success, -errno for an error, or (positive) the reason of a reject
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
  /// Takes the next event from the channel and acknowledges it. Returns no value if no event is
  /// pending.
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

/// Sets the traffic class of the packets that rdma_cm sends for an id, and of the path that it
/// finds. Call it before the id resolves a route or listens. Throws VerbsError.
void set_traffic_class(rdma_cm_id* id, std::uint8_t traffic_class);
/// Returns the MTU of the path that rdma_cm has found, or of the path in the peer's request; 0 if
/// it is unknown.
ibv_mtu mtu_of_path(const rdma_cm_id* id) noexcept;
/// Makes librdmacm release a device that is being removed. librdmacm keeps a handle of its own on
/// every device it has met, and for some devices (rxe) the kernel delays the removal until the last
/// handle is closed. `its_handle` is the `verbs` of an id that still exists. As a side effect
/// librdmacm opens every other device.
void let_go_of_device(ibv_context* its_handle) noexcept;

/// True if the event ends the rdma_connect() or rdma_accept() that was in progress on its id, with
/// success or failure. Other events, such as a changed address, do not.
bool ends_connect(const CmEvent& event) noexcept;
/// True if the peer's kernel rejected the connect request as stale (IB CM reject reason 10): there
/// is still a connection from a queue pair of the same number. A retry with a new queue pair is not
/// rejected for this reason.
bool is_stale(const CmEvent& event) noexcept;
/// Describes an rdma_cm event for an error message, such as "no RDMA route to the address: ...".
std::string describe(const CmEvent& event);

}}}  // namespace conn::rdma
