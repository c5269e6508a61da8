// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Smart pointers for rdma_cm objects (ids and event channels), and functions that interpret rdma_cm
// events.

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
  /// Id of the listener that received the request; set only for CONNECT_REQUEST.
  rdma_cm_id* listen_id;
  int status;  ///< 0: success; negative: -errno; positive: the reason of a reject
  std::array<std::byte, 256> private_data;
  std::size_t private_data_size;
  std::span<const std::byte> data() const { return {private_data.data(), private_data_size}; }
};

/// Interface of an object that receives the rdma_cm events of one id. The id's `context` points to
/// the object.
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

/// The rdma_cm event channel of one event loop: a file descriptor in non-blocking mode, from which
/// events of its ids are read.
class CmChannel {
 public:
  /// Opens the channel. Throws VerbsError; ENODEV, ENOENT and EACCES mean that RDMA is not
  /// available on this machine, or not to this user.
  CmChannel();
  int fd() const noexcept { return channel_->fd; }
  /// Takes the next event from the channel and acknowledges it. Never blocks; returns no value if
  /// no event is pending.
  std::optional<CmEvent> next();
  /// Creates an id on this channel. `context` is the CmUser that receives the events of the id, or
  /// null. Throws VerbsError.
  CmId create_id(void* context);
  /// Moves `id` to this channel, together with its pending events (rdma_migrate_id(3)). Call it on
  /// the thread that takes events from the id's present channel. Every event of the id that was
  /// taken must be acknowledged. The id must be destroyed before this channel. Returns false if the
  /// id could not be moved.
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

/// Sets the traffic class of the packets that rdma_cm sends for an id, and of the path that rdma_cm
/// resolves for it. Call it before the id resolves a route or listens. Throws VerbsError.
void set_traffic_class(rdma_cm_id* id, std::uint8_t traffic_class);
/// Returns the path MTU that rdma_cm has resolved or, on the accepting side, the one in the peer's
/// request; 0 if it is unknown.
ibv_mtu mtu_of_path(const rdma_cm_id* id) noexcept;
/// Makes librdmacm close its handle of a device that is being removed. librdmacm opens every device
/// that it uses, and for some drivers (rxe) the kernel delays the removal until the last handle is
/// closed. `its_handle` is the `verbs` of an id that still exists on that device. As a side effect
/// librdmacm opens all other devices.
void let_go_of_device(ibv_context* its_handle) noexcept;

/// Returns true if the event reports that an rdma_connect() or rdma_accept() on its id has
/// succeeded or failed; false for other events, such as a changed address.
bool ends_connect(const CmEvent& event) noexcept;
/// Returns true if the peer's kernel rejected the connect request as stale (IB CM reject reason
/// 10): it still knows an old connection from a queue pair with the same number. A retry with a new
/// queue pair can succeed.
bool is_stale(const CmEvent& event) noexcept;
/// Describes an rdma_cm event for an error message, such as "no RDMA route to the address: ...".
std::string describe(const CmEvent& event);

}}}  // namespace conn::rdma
