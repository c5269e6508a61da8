// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A connection's objects of rdma_cm and of its device, and the byte stream that runs over them. The
// objects are created in this order:
//
//   rdma_cm id, device context, protection domain, first receive window, receives,
//   reserved entries of a completion queue, queue pair
//
// (On soft-RoCE the first receive window comes after the queue pair: Device::keys_are_younger().)
// The queue pair is destroyed first, the rdma_cm id last.
//
// If an address fails during connect(), the objects are destroyed and created again for the next
// address. Memory of which the user has a view (a pointer into a receive window) outlives the other
// objects (release_kept()).

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "conn/rdma/config/settings.h"
#include "conn/rdma/device/cm.h"
#include "conn/rdma/device/queue_pair.h"
#include "conn/rdma/loop/device_context.h"
#include "conn/rdma/loop/loop_state.h"
#include "conn/rdma/memory/completion_queues.h"
#include "conn/rdma/memory/domain.h"
#include "conn/rdma/memory/receive_queue.h"
#include "conn/rdma/pair_state.h"
#include "conn/rdma/path.h"
#include "conn/rdma/protocol/stage.h"
#include "conn/rdma/protocol/stream.h"
#include "conn/rdma/sender.h"
#include "conn/rdma/window_memory.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Interface of the connection that owns a Link. It is called when the loop, the device or rdma_cm
/// reports something that concerns the connection.
class LinkUser : public LoopConnection, public QueuePairUser, public CmUser {
 protected:
  ~LinkUser() override = default;
};

class Link {
 public:
  Link(LoopState& state, std::shared_ptr<const Settings> settings, Role role, LinkUser& user);

  // --- loop, settings, and access to the objects -------------------------------------------------
  LoopState& state() const noexcept { return *state_; }
  /// Makes this object use another event loop. It must have no rdma_cm or verbs objects at that
  /// time.
  void move_to(LoopState& state) noexcept { state_ = &state; }
  LinkUser& user() const noexcept { return user_; }
  const Settings& settings() const noexcept { return *settings_; }
  Role role() const noexcept { return role_; }
  /// Returns true in a child of fork(): all rdma_cm and verbs objects belong to the parent process
  /// and must not be touched.
  bool inherited() const noexcept { return made_here_.inherited(); }

  CmId& id() noexcept { return id_; }
  /// Returns the device that the connection uses; null before make() and after the objects are
  /// destroyed.
  DeviceContext* context() const noexcept { return context_.get(); }
  Domain* domain() const noexcept { return domain_.get(); }
  ibv_qp* queue_pair() const noexcept { return qp_.get(); }
  ReceiveQueue* receives() const noexcept {
    if (receives_ != nullptr) return receives_.get();
    return domain_ != nullptr ? domain_->shared_receives() : nullptr;
  }
  /// Returns the route of the connection (GID, MTU, traffic class): read from the device if there
  /// is a queue pair, otherwise the last known one.
  const Route& read_route() const noexcept {
    const bool there = qp_ && id_ && !inherited();
    return path.route(there ? qp_.get() : nullptr, there ? id_->port_num : 0);
  }

  // --- creating the objects ----------------------------------------------------------------------
  /// Replaces the settings that were passed to the constructor. Must not be called once the
  /// connection has created an rdma_cm or verbs object.
  void configure(std::shared_ptr<const Settings> settings);
  /// Replaces the protocol state of the byte stream by a new one, for another address or another
  /// queue pair. `connection`: the number of the connection that static trace points report.
  void renew_stream(std::uint64_t connection);
  /// Creates the queue pair and the objects that it needs (device context, protection domain, first
  /// receive window, receives, completion queue) on the device of the rdma_cm id. Throws
  /// VerbsError; objects that were created before the failure stay until tear_down(). `may_bind`:
  /// false if the queue pair must not bind keys (memory windows), because a bind has failed on an
  /// earlier queue pair.
  void make(bool may_bind);
  /// Call when the peer's parameters are known: makes the queue pair ready to send and receive
  /// (state RTS), with the path MTU `mtu`. Throws VerbsError.
  void connect(ibv_mtu mtu);
  /// Tests whether the device can bind the keys of receive windows to a queue pair; call it before
  /// the connection is established. Some devices refuse a bind when it is posted, others when it is
  /// executed, which makes the queue pair unusable. So a device counts as able only after it has
  /// carried out a bind. Returns false if this queue pair is unusable: create another one that
  /// binds no keys. The device counts as unable only after a failure that the peer cannot have
  /// caused; after any other failure the next connection tests it again. Throws VerbsError if the
  /// option isolation=window requires a key that could not be bound.
  bool keys_work();
  /// Call when a work request has failed. Returns true if keys_work() is waiting for the result of
  /// a bind, which is this failure: the failure must then not end the connection. Only the first
  /// call returns true.
  bool take_proving() noexcept { return std::exchange(proving_, false); }

  // --- while the connection is open --------------------------------------------------------------
  /// Frees the receive windows (memory for the peer's data) that the stream no longer uses and
  /// provides those that it wants. Call it after every input to the stream.
  void manage_windows();
  /// Call when requests on the send queue have completed: records the changes of the keys of
  /// receive windows that they have carried out.
  void on_keys_changed();
  /// Call when the device has refused to bind or invalidate the key of `window`: frees the window,
  /// or continues without bound keys. Returns false if neither is possible, so that the connection
  /// cannot continue.
  bool on_key_refused(ReceiveWindow& window);
  bool keys_go_alone() const noexcept { return context_ && context_->device().binds_alone(); }
  /// Processes all completions in the completion queue that this connection uses, including those
  /// of other connections.
  void drain() { context_->drain(*lease_.queue()); }
  /// Returns the time that our device needs to use up its retries and fail a request, if the peer's
  /// device does not answer.
  ae::Duration retry_time() const noexcept;

  // --- stopping the queue pair and destroying the objects ----------------------------------------
  /// Destroys all rdma_cm and verbs objects during the set-up, so that another address or queue
  /// pair can be tried.
  void tear_down() noexcept;
  /// Stops the queue pair by moving it to the error state. Later calls do nothing.
  void stop() noexcept;
  /// Does what stop() does, after posting a last request that asks for a completion: so the device
  /// reports every request on the send queue, and quiet() becomes true soon.
  void stop_and_report() noexcept;
  /// Returns true if the device has no more completions to report for the queue pair, so that
  /// destroying it loses none.
  bool quiet() const noexcept;
  /// Returns false if the port is known to be down, so that no disconnect can be sent.
  bool can_disconnect() const noexcept;
  /// Queries the state of the device's port, because a port may go down without an event.
  void ask_port() noexcept;
  /// Call when the failure of a request suggests that the device's port has no link or no route.
  /// The port then counts as down until a query of its state shows that it is up.
  void on_no_route() noexcept;
  /// Destroys the queue pair, after processing the completions that are still in its completion
  /// queue.
  void destroy_queue_pair() noexcept;
  /// Frees the receive windows and the memory for sending, then the other objects. Memory of which
  /// the user has a view (`viewed`: peek() has returned it) or a reservation is kept until
  /// release_kept(). The stream must not use the windows afterwards.
  void release(bool viewed) noexcept;
  /// Frees the memory that release() has kept, unless a view (`viewed`) or a reservation of the
  /// user still uses it.
  void release_kept(bool viewed) noexcept;

 private:
  void set_up(bool may_bind);
  /// Posts the requests that bind or invalidate keys of receive windows. Returns false if the
  /// device has stopped the queue pair.
  bool post_keys();
  /// Call when keys_work() finds this queue pair unusable: detaches it, so that another can replace
  /// it, and returns false. Throws VerbsError if the option isolation=window forbids that.
  bool give_up_pair();

  LoopState* state_;
  std::shared_ptr<const Settings> settings_;  // never null
  LinkUser& user_;
  const ae::MadeHere made_here_;
  const Role role_;
  // True while keys_work() waits for the device to report the result of a bind.
  bool proving_ = false;

  // release() empties these members in the right order before they are destroyed.
  CmId id_;
  std::shared_ptr<DeviceContext> context_;
  std::shared_ptr<Domain> domain_;
  // Memory that is still used after the protection domain domain_ was released. viewed_,
  // viewed_windows_: the domain and the receive windows of which the user has a view. reserved_:
  // the domain of the memory that the user has reserved. Null: there is none. The view and the
  // reservation may belong to different network paths.
  std::shared_ptr<Domain> viewed_;
  WindowMemory::Windows viewed_windows_;
  std::shared_ptr<Domain> reserved_;
  std::unique_ptr<ReceiveQueue> receives_;
  CqLease lease_;
  Pinned rings_;
  Qp qp_;

 public:
  PairState pair;
  Stage stage;
  Stream stream;
  WindowMemory windows{stream};
  Sender sender;
  Path path;
};

/// Returns the parameters for rdma_connect() or rdma_accept(). `hello`: the private data, which
/// must stay valid during that call. `link` must have a queue pair.
rdma_conn_param connection_parameters(const Link& link, std::span<const std::byte> hello);

}}}  // namespace conn::rdma
