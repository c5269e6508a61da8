// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A connection's objects of rdma_cm and of its device, and the byte stream that runs over them. The
// objects are created in this order:
//
//   id, context, domain, first window, receives, completion queue lease, queue pair
//
// (On soft-RoCE the first window comes after the queue pair: Device::keys_are_younger().) The queue
// pair is destroyed first, the id last.
//
// If an address fails during connect(), the objects are destroyed and created again for the next
// address; nothing else is lost. Memory that the user still looks at in place outlives the other
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

/// The connection that has a Link: it is called when the loop, the device or rdma_cm reports
/// something about it.
class LinkUser : public LoopConnection, public QueuePairUser, public CmUser {
 protected:
  ~LinkUser() override = default;
};

class Link {
 public:
  Link(LoopState& state, std::shared_ptr<const Settings> settings, Role role, LinkUser& user);

  // --- properties --------------------------------------------------------------------------------
  LoopState& state() const noexcept { return *state_; }
  /// Makes the link use another loop. At that time it must have no objects of rdma_cm or of a
  /// device.
  void move_to(LoopState& state) noexcept { state_ = &state; }
  LinkUser& user() const noexcept { return user_; }
  const Settings& settings() const noexcept { return *settings_; }
  Role role() const noexcept { return role_; }
  /// Returns true in a child of fork(): all rdma_cm and verbs objects belong to the parent process
  /// and must not be touched.
  bool inherited() const noexcept { return made_here_.inherited(); }

  CmId& id() noexcept { return id_; }
  /// Returns the open device that the connection uses; null before a queue pair is created, and
  /// after it is torn down.
  DeviceContext* context() const noexcept { return context_.get(); }
  Domain* domain() const noexcept { return domain_.get(); }
  ibv_qp* queue_pair() const noexcept { return qp_.get(); }
  ReceiveQueue* receives() const noexcept {
    if (receives_ != nullptr) return receives_.get();
    return domain_ != nullptr ? domain_->shared_receives() : nullptr;
  }
  /// Returns the route of the connection: read from the device if there is a queue pair, otherwise
  /// as it was known last.
  const Route& read_route() const noexcept {
    const bool there = qp_ && id_ && !inherited();
    return path.route(there ? qp_.get() : nullptr, there ? id_->port_num : 0);
  }

  // --- set-up ------------------------------------------------------------------------------------
  /// Replaces the settings that were passed to the constructor. Must not be called once the
  /// connection has created an rdma_cm or verbs object.
  void configure(std::shared_ptr<const Settings> settings);
  /// Starts the stream anew, for another address or another queue pair. `connection`: the id of the
  /// connection, for tracing probes.
  void renew_stream(std::uint64_t connection);
  /// Creates the queue pair and the objects that it needs (device context, protection domain, first
  /// window, receives, completion queue) on the device of the rdma_cm id. Throws VerbsError;
  /// objects that were created before the failure stay until tear_down().
  /// `may_bind`: false if the queue pair must bind no keys although the device may be able to.
  void make(bool may_bind);
  /// Call when the parameters of both ends are known: makes the queue pair ready to send and
  /// receive. Throws VerbsError.
  void connect(ibv_mtu mtu);
  /// Tests whether the device can bind the keys of windows to a queue pair; call it before the
  /// connection is established. Some devices refuse a bind when it is posted, some when it is
  /// executed, and the latter makes the queue pair unusable; so a device counts as able only once
  /// it has carried out a bind. Returns false if this queue pair is unusable: create another one,
  /// which binds no keys. The device counts as unable only if it reports a failure of the bind that
  /// the peer cannot have caused; otherwise the next connection tries again. Throws VerbsError if
  /// option isolation=window requires a key that could not be bound.
  bool keys_work();
  /// Call when the device reports that a work request failed. Returns true, for one failure only,
  /// if keys_work() was waiting for the result of a bind; the failure must then not end the
  /// connection.
  bool take_proving() noexcept { return std::exchange(proving_, false); }

  // --- while the connection is open --------------------------------------------------------------
  /// Takes back windows that the stream no longer uses and provides those that it wants. Call after
  /// every input to the stream.
  void manage_windows();
  /// Call when the requests on the send queue up to number sender.requests().done() are complete:
  /// records which changes of window keys have been carried out by them.
  void on_keys_changed();
  /// Call when the device refused to bind or invalidate the key of `window`. Returns false if the
  /// connection cannot continue.
  bool on_key_refused(ReceiveWindow& window);
  bool keys_go_alone() const noexcept { return context_ && context_->device().binds_alone(); }
  /// Processes all completions in the completion queue that this connection uses; other connections
  /// may share that queue.
  void drain() { context_->drain(*lease_.queue()); }
  /// Returns the time after which our device, without an answer of the peer's device, has used up
  /// its retries and fails the request.
  ae::Duration retry_time() const noexcept;

  // --- the end of the connection -----------------------------------------------------------------
  /// Destroys all rdma_cm and verbs objects during set-up, so that another address or queue pair
  /// can be tried.
  void tear_down() noexcept;
  /// Stops the queue pair by putting it into its error state. Calls after the first one do nothing.
  void stop() noexcept;
  /// Does what stop() does, in a way that quiet() becomes true soon: the device reports each
  /// request of the send queue.
  void stop_and_report() noexcept;
  /// Returns true if the device has no more completions to report for the queue pair, so that
  /// destroying it loses none.
  bool quiet() const noexcept;
  /// Returns false if the port is known to be down, so that a disconnect could not be sent.
  bool can_disconnect() const noexcept;
  /// Queries the state of the device's port and records it, because a port may go down without an
  /// event.
  void ask_port() noexcept;
  /// Records that nothing can be sent through the device's port for now.
  void on_no_route() noexcept;
  /// Destroys the queue pair, after processing the completions that are still in its completion
  /// queue.
  void destroy_queue_pair() noexcept;
  /// Frees the windows and the staging memory, then the objects. The memory is kept for
  /// release_kept() while the user has a view of it (`viewed`) or has reserved a part of it. The
  /// stream must not use the windows afterwards.
  void release(bool viewed) noexcept;
  /// Frees the memory that release() kept, except what a view (`viewed`) or a reservation still
  /// uses.
  void release_kept(bool viewed) noexcept;

 private:
  void set_up(bool may_bind);
  /// Returns false if the queue pair was stopped before the keys were posted.
  bool post_keys();
  /// Prepares for another queue pair in place of this one; returns false, for keys_work().
  bool give_up_pair();

  LoopState* state_;
  std::shared_ptr<const Settings> settings_;  // never null
  LinkUser& user_;
  const ae::MadeHere made_here_;
  const Role role_;
  // True while keys_work() waits for the device to report the result of a bind.
  bool proving_ = false;

  // C++ destroys these members from the last to the first, but release() has emptied them before
  // that.
  CmId id_;
  std::shared_ptr<DeviceContext> context_;
  std::shared_ptr<Domain> domain_;
  // Memory that is still used after domain_ was released: the windows that the user views, and the
  // owner of their memory; the owner of the memory that the user has reserved. Null: there is none.
  // The two may belong to different paths.
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

/// Returns the parameters of a connection request, or of its answer, whose private data is `hello`.
/// `link` must have a queue pair.
rdma_conn_param connection_parameters(const Link& link, std::span<const std::byte> hello);

}}}  // namespace conn::rdma
