// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What one connection has of rdma_cm and of its device, with the stream that runs over it: made in
// one order, torn down in the reverse.
//
//   id, context, domain, receives, first window, completion queue lease, queue pair
//
// An address that fails costs its objects and nothing else: they are torn down, and made again for
// the next address. Memory that the user still looks at outlives them (release_kept()).
//
// The queue pair:
//   state         what holds                                          next
//   kNone         there is none                                       kMade
//   kMade         INIT: receives are posted                           kConnected, kDiscarded
//   kConnected    RTS, or about to be: work may be posted             kStopped
//   kDiscarded    put into its error state before it was connected    -
//   kStopped      put into its error state; the device may still      -
//                 report what it was doing: see quiet()
//   any           torn down                                           kNone

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
#include "conn/rdma/path.h"
#include "conn/rdma/protocol/stage.h"
#include "conn/rdma/protocol/stream.h"
#include "conn/rdma/sender.h"
#include "conn/rdma/window_memory.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class Link {
 public:
  struct Users {  ///< who is told what happens to it
    LoopConnection& loop;
    QueuePairUser& queue_pair;
    CmUser& cm;
  };
  enum class QueuePair : std::uint8_t { kNone, kMade, kConnected, kDiscarded, kStopped };

  Link(LoopState& state, const Settings& settings, Role role, const Users& users);

  // --- what it is --------------------------------------------------------------------------------
  LoopState& state() const noexcept { return state_; }
  const Settings& settings() const noexcept { return settings_; }
  Role role() const noexcept { return role_; }
  /// A child of fork(): everything belongs to its parent.
  bool inherited() const noexcept { return made_here_.inherited(); }

  CmId& id() noexcept { return id_; }
  /// Null before a queue pair is made, and after it is torn down.
  DeviceContext* context() const noexcept { return context_.get(); }
  Domain* domain() const noexcept { return domain_.get(); }
  ibv_qp* queue_pair() const noexcept { return qp_.get(); }
  ReceiveQueue* receives() const noexcept;
  /// Asks the device for the route, if there is a queue pair.
  const Route& read_route() const noexcept {
    const bool there = qp_ && id_ && !inherited();
    return path.route(there ? qp_.get() : nullptr, there ? id_->port_num : 0);
  }

  // --- set-up ------------------------------------------------------------------------------------
  /// For a connection that has nothing yet: other settings than at construction.
  void configure(const Settings& settings);
  /// The stream begins anew: for another address, or another queue pair. `connection`: its id.
  void renew_stream(std::uint64_t connection);
  /// Makes the queue pair, on the device of the id. Throws VerbsError; what was made stays, and is
  /// to be torn down.
  void make();
  /// Both ends' parameters are known: the queue pair can send and receive. Throws VerbsError.
  void connect(ibv_mtu mtu);
  /// Called before the connection is established. A device counts as able to bind keys once it has
  /// carried out a bind: some refuse it when it is posted, some when it is executed, and then the
  /// queue pair is unusable. False: this one is unusable; the next will not bind keys.
  bool keys_work();
  /// The device failed a request while keys_work() waited for it.
  bool take_proving() noexcept { return std::exchange(proving_, false); }
  rdma_conn_param parameters(std::span<const std::byte> hello) const;

  // --- while it is open --------------------------------------------------------------------------
  /// Call after every input to the stream.
  void manage_windows();
  /// All sends up to sender.done() are complete.
  void on_keys_changed();
  /// The device refused to change the key of a window. False: the connection cannot go on.
  bool on_key_refused(ReceiveWindow& window);
  bool keys_go_alone() const noexcept { return context_ && context_->device().binds_alone(); }
  /// Takes all completions that are in its queue.
  void drain() { context_->drain(*lease_.queue()); }
  /// Time until the retries without an answer are exhausted.
  ae::Duration patience() const noexcept;

  // --- the end -----------------------------------------------------------------------------------
  /// While it is set up: everything goes, for another try.
  void tear_down() noexcept;
  /// Puts the queue pair into its error state, once.
  void stop() noexcept;
  void on_last_receive() noexcept { last_receive_ = true; }
  /// The device has nothing more to report about the queue pair: destroying it loses no
  /// completions.
  bool quiet() const noexcept;
  bool was_connected() const noexcept {
    return state_of_pair_ == QueuePair::kConnected || state_of_pair_ == QueuePair::kStopped;
  }
  /// The port is not known to be down, so that a disconnect can leave.
  bool can_disconnect() const noexcept;
  /// Queries the port, which may be down without an event.
  void ask_port() noexcept;
  /// Destroys the queue pair, after what is still in its completion queue was handled.
  void destroy_queue_pair() noexcept;
  /// Frees the rest: windows and staging memory (unless `viewed`, or reserved: see release_kept()),
  /// then the objects. The stream must not use the windows any more.
  void release(bool viewed) noexcept;
  /// Frees what release() kept, unless it is still in use. False: it kept nothing.
  bool release_kept(bool viewed) noexcept;

 private:
  void set_up();
  void post_keys();
  std::uint32_t own_receives_wanted() const noexcept;
  QpTimeouts timeouts() const noexcept;
  void set(QueuePair next) noexcept;

  LoopState& state_;
  Settings settings_;
  const Role role_;
  const Users users_;
  const ae::MadeHere made_here_;
  QueuePair state_of_pair_ = QueuePair::kNone;
  bool last_receive_ = false;  // the last shared receive has come back (LAST_WQE_REACHED)
  bool proving_ = false;       // waiting for the result of a bind, before establishment

  // Destroyed bottom to top, but release() has done that.
  CmId id_;
  std::shared_ptr<DeviceContext> context_;
  std::shared_ptr<Domain> domain_;
  std::shared_ptr<Domain> kept_;  // keeps memory of a view or reservation that outlives domain_
  std::unique_ptr<ReceiveQueue> receives_;
  CqLease lease_;
  Pinned rings_;
  Qp qp_;

 public:
  Stage stage;
  Stream stream;
  WindowMemory windows{stream};
  Sender sender;
  Path path;
};

}}}  // namespace conn::rdma
