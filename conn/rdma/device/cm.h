// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Owners of rdma_cm objects, and what their events mean.

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

/// A copy of an rdma_cm event that is already acknowledged: nothing in it refers to the channel.
struct CmEvent {
  rdma_cm_event_type type;
  rdma_cm_id* id;
  rdma_cm_id* listen_id;  ///< CONNECT_REQUEST: the listening id
  int status;             ///< -errno, or a reject reason
  std::array<std::byte, 256> private_data;
  std::size_t private_data_size;
  std::span<const std::byte> data() const { return {private_data.data(), private_data_size}; }
};

/// Receives the rdma_cm events of one id; id->context points to it.
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

/// The event channel of one loop; non-blocking.
class CmChannel {
 public:
  /// Throws VerbsError (ENODEV, ENOENT, EACCES: RDMA is not available here).
  CmChannel();
  int fd() const noexcept { return channel_->fd; }
  /// Takes the next event and acknowledges it. No value: there is none now.
  std::optional<CmEvent> next();
  /// Throws VerbsError.
  CmId create_id(void* context);
  /// Moves `id` to this channel, with its events that have not been taken yet (rdma_migrate_id(3)).
  /// Call it on the thread that takes the events of the id's present channel; none of them may be
  /// unacknowledged. The id must be destroyed before this channel. False: the id was not moved.
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

/// Sets the traffic class of what rdma_cm sends for an id, and of the path that it finds; must be
/// set before the id looks for a path or listens. Throws VerbsError.
void set_traffic_class(rdma_cm_id* id, std::uint8_t traffic_class);
/// The MTU of the path that rdma_cm has found, or that the peer asks for; 0: unknown.
ibv_mtu mtu_of_path(const rdma_cm_id* id) noexcept;

/// Makes librdmacm release a device that is being removed: librdmacm keeps a handle of its own on
/// every device it has met, and for some (rxe) the kernel waits until the last handle is closed.
/// `its_handle` is the `verbs` of an id that still exists. As a side effect librdmacm opens every
/// other device.
void let_go_of_device(ibv_context* its_handle) noexcept;

/// After this event no rdma_connect() or rdma_accept() of its id is in progress. Other events, for
/// instance of a changed address, do not end one.
bool ends_connect(const CmEvent& event) noexcept;
/// The peer's kernel takes our request for a connection that it still knows (IB CM reject reason
/// 10); with another queue pair it will not.
bool is_stale(const CmEvent& event) noexcept;
/// Describes an rdma_cm event in our words: "nobody listens there", "the route ...".
std::string describe(const CmEvent& event);

}}}  // namespace conn::rdma
