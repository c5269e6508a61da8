// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The listener of rdma://. It has one rdma_cm id for each address that it listens on. It accepts
// connection requests when rdma_cm reports them, and hands established connections to the user
// later, in batches, from the loop's ready list.

#include <deque>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "ae/abi.h"
#include "ae/core/handler_slot.h"
#include "conn/core/pending_connection.h"
#include "conn/kit/resolver.h"
#include "conn/rdma/carrier.h"
#include "conn/rdma/loop/loop_state.h"
#include "conn/rdma/pending_connection.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// The user's handler. `accepted` is called with established connections; `arrived` (of a port
/// listener) with connection requests. Exactly one of them is set.
struct ListenTo {
  AcceptHandler accepted = nullptr;
  PendingHandler arrived = nullptr;
};

/// The common implementation of a listener, a port listener (which passes requests on to other
/// loops) and a loop acceptor (which accepts such requests on one loop, and listens on no address).
/// It stays alive while a handler runs, even if the handler destroys the user's object.
class ListenerCore final : public ae::Deferred,
                           public ReadyItem,
                           public LoopListener,
                           public AcceptOwner {
 public:
  ListenerCore(const ConnectionType& type, LoopState& state, const Settings& settings, ListenTo to);
  ~ListenerCore() override;
  /// Starts to listen on the addresses of `endpoint`. Throws Error if it can listen on none, or not
  /// on one that is not optional, or if memory limits allow no connection.
  void listen(const Endpoint& endpoint);
  void stop() noexcept;
  void loop_gone() noexcept override;
  ae::EventLoop* loop() const noexcept { return state_ != nullptr ? &state_->loop() : nullptr; }

  const ConnectionType& type() const noexcept { return type_; }
  std::vector<Endpoint> endpoints() const;
  void pause() noexcept { paused_ = true; }
  void resume();
  void on_refused(const RefusedHandler& handler) { refused_.set(handler); }
  /// Queues `why`, the reason for which a request was refused, for the handler set by on_refused().
  /// The loop calls that handler later, from its ready list.
  void refused(const Failure& why);
  const Quota& quota() const noexcept { return quota_; }

  /// Port listener only: leave() removes the listener from its loop, and arrive(), called on the
  /// new loop, completes the move. `to`: the rdma_cm channel of the new loop. Requests that have
  /// arrived are handled first or moved, too. A connect between the two calls finds no listener and
  /// is refused.
  void leave(const std::shared_ptr<CmChannel>& to) noexcept;
  void arrive(LoopState& state);
  /// take() accepts a connection request; or queues it while the listener is paused; or refuses it
  /// if too many wait. give_back() (if a port listener passes the requests to this object) removes
  /// and returns the oldest queued request; null if there is none.
  void take(std::unique_ptr<RdmaPending> request);
  std::unique_ptr<RdmaPending> give_back() noexcept;
  const Settings& settings() const noexcept override { return settings_; }
  bool wishes_prepared() const noexcept override { return settings_.prepared != 0 && !arrived_; }
  /// Returns true if connections may arrive on the device with this name: for "*", while it
  /// listens, and for a loop acceptor, which has no address, on any that option `device` permits.
  bool is_on(const std::string& device) const override;
  /// Returns the names of the devices to which the listening addresses belong; "" for an address
  /// that belongs to any device ("*").
  std::set<std::string> devices() const;

  void retry_if_down() noexcept override;
  ae::TimePoint retry_if_due(ae::TimePoint now) noexcept override;
  void follow_addresses() noexcept override;
  void drop_request(const rdma_cm_id* id) noexcept override;
  /// Counts in the statistics a connection request that was refused before it was passed to this
  /// object.
  void count_rejected() noexcept;

 private:
  class Port;  // one listening address

  std::size_t run_ready() override;
  void on_established(LinkedCarrier& carrier) noexcept override;
  void on_lost(LinkedCarrier& carrier) noexcept override;
  void on_request(const CmEvent& event);
  void accept(std::unique_ptr<RdmaPending> request);
  void accept_waiting();
  void leave_loop() noexcept;
  void schedule_retry() noexcept;
  ae::Duration retry_down();

  const ConnectionType& type_;
  // RDMA state of the loop on which the listener runs; null after that loop was destroyed, and
  // while the listener moves to another loop.
  LoopState* state_;
  Endpoint endpoint_;
  // The settings of this listener and of the connections that it accepts.
  const std::shared_ptr<const Settings> shared_settings_;
  const Settings& settings_ = *shared_settings_;
  const Quota quota_;
  ae::HandlerSlot<void(ConnectionPtr)> accepted_;
  // Handler for connection requests, set if this is a port listener (which passes requests on to
  // other loops); otherwise accepted_, the handler for connections, is set.
  ae::HandlerSlot<void(PendingConnectionPtr)> arrived_;
  ae::HandlerSlot<void(const Failure&)> refused_;
  // Reasons for refused requests that are not yet reported to the handler refused_; at most as many
  // as the option backlog allows.
  std::deque<Failure> refusals_;
  std::vector<std::unique_ptr<Port>> ports_;
  // Connection requests that arrived while the listener was paused and that are not accepted yet.
  std::deque<std::unique_ptr<RdmaPending>> requests_;
  // Connections that are being accepted, and established ones that are not handed over to the user
  // yet.
  std::unordered_map<LinkedCarrier*, ConnectionPtr> young_;
  // Established connections that are not handed over to the user yet, oldest first. Has capacity
  // for all connections in young_, so that appending allocates no memory.
  std::vector<LinkedCarrier*> established_;
  ae::TimerId retry_ = 0;
  ae::TimePoint retry_at_ = ae::TimePoint::max();  // time at which the timer retry_ is due
  // True if an address may have moved to a device other than the one to which the rdma_cm id that
  // listens on it is bound.
  bool follows_ = false;
  bool paused_ = false, stopped_ = false;
};

/// The object that the user owns for a listener or a port listener of rdma://. ListenerCore does
/// its work.
class RdmaListener final : public PortListener {
 public:
  /// Creates the listener and starts to listen on `endpoint`. Throws Error on failure.
  RdmaListener(const ConnectionType& type, LoopState& state, const Endpoint& endpoint,
               const Settings& settings, ListenTo to);
  ~RdmaListener() override;

  const ConnectionType& type() const noexcept override { return core_->type(); }
  std::vector<Endpoint> endpoints() const override { return core_->endpoints(); }
  void pause() override { core_->pause(); }
  void resume() override { core_->resume(); }
  void on_refused(const RefusedHandler& handler) override { core_->on_refused(handler); }
  std::uint64_t max_connections() const override { return core_->quota().most(); }
  bool leave(const Handoff* to) noexcept override;
  void arrive(ae::EventLoop& loop) override;
  std::vector<int> near_processors() const override;

 private:
  std::unique_ptr<ListenerCore> core_;
};

/// The object that the user owns for a loop acceptor of rdma://, which accepts the connection
/// requests that a port listener passes to this loop.
class RdmaLoopAcceptor final : public LoopAcceptor {
 public:
  RdmaLoopAcceptor(const ConnectionType& type, LoopState& state, const Settings& settings,
                   AcceptHandler accepted);
  ~RdmaLoopAcceptor() override;

  const ConnectionType& type() const noexcept override { return core_->type(); }
  void pause() override { core_->pause(); }
  void resume() override { core_->resume(); }
  void on_refused(const RefusedHandler& handler) override { core_->on_refused(handler); }
  void arrive(PendingConnectionPtr arrival) override;
  PendingConnectionPtr give_back() noexcept override { return core_->give_back(); }
  void refused(const Failure& why) override { core_->refused(why); }
  void count_rejected() noexcept override;
  std::shared_ptr<const Handoff> handoff() const override { return handoff_; }

 private:
  std::unique_ptr<ListenerCore> core_;
  const std::shared_ptr<const RdmaHandoff> handoff_;
};

}}}  // namespace conn::rdma
