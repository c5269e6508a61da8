// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// rdma:// listening: one rdma_cm id for each bind address, requests accepted from rdma_cm events,
// connections handed over from the ready list, a batch at a time.

#include <deque>
#include <memory>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "ae/abi.h"
#include "ae/core/handler_slot.h"
#include "conn/core/pending_connection.h"
#include "conn/kit/resolver.h"
#include "conn/rdma/connection.h"
#include "conn/rdma/loop/loop_state.h"
#include "conn/rdma/pending_connection.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Who gets what arrives: a connection, once it is open; or, from a gate, the request.
struct ListenTo {
  AcceptHandler accepted = nullptr;
  PendingHandler arrived = nullptr;
};

/// The inside of a listener, of a gate, and of a receiver, which listens on no address of its own.
/// It outlives a handler that destroys the listener.
class ListenerCore final : public ae::Deferred, public ReadyItem {
 public:
  ListenerCore(const ConnectionType& type, LoopState& state, const Settings& settings, ListenTo to);
  ~ListenerCore() override;
  /// Begins to listen. Throws Error.
  void listen(const Endpoint& endpoint);
  void stop() noexcept;
  /// Stops; afterwards nothing here touches the loop.
  void loop_gone() noexcept;
  ae::EventLoop* loop() const noexcept { return state_ != nullptr ? &state_->loop() : nullptr; }

  const ConnectionType& type() const noexcept { return type_; }
  std::vector<Endpoint> endpoints() const;
  void pause() noexcept { paused_ = true; }
  void resume();
  void on_refused(const RefusedHandler& handler) { refused_.set(handler); }
  /// Has the handler told of it, from where one may run.
  void refused(const Failure& why);
  const Quota& quota() const noexcept { return quota_; }

  /// Of a gate: off its loop, on to another. What has arrived goes first, or along; who comes in
  /// between finds nobody listening.
  void leave(const std::shared_ptr<CmChannel>& to) noexcept;
  void arrive(LoopState& state);
  /// Of a receiver: from a gate, and back.
  void take(std::unique_ptr<RdmaPending> request);
  std::unique_ptr<RdmaPending> give_back() noexcept;
  const Settings& settings() const noexcept { return settings_; }
  /// Its connections are made on this loop, and are to find queue pairs ready.
  bool wishes_prepared() const noexcept { return settings_.prepared != 0 && !arrived_; }
  /// Arrivals may come by this device: of a receiver, or at "*", by any.
  bool is_on(const std::string& device) const;
  /// Names of the devices that its addresses are on.
  std::set<std::string> devices() const;

  /// From a connection of ours: it is ready for data; or it died before it was handed over.
  void on_established(RdmaConnection& connection) noexcept;
  void on_lost(RdmaConnection& connection) noexcept;
  /// Looks for devices that went, if there was no memory for it when they did.
  void retry_if_down() noexcept;
  /// A request that waits here has lost its sender or its device.
  void drop_request(const rdma_cm_id* id) noexcept;
  /// For a request that was refused before it came here.
  void count_rejected() noexcept;

 private:
  class Port;  // one bind address

  std::size_t run_ready() override;
  void on_request(const CmEvent& event);
  void accept(std::unique_ptr<RdmaPending> request);
  void accept_waiting();
  void leave_loop() noexcept;
  void look_at_limits();
  void schedule_retry() noexcept;
  ae::Duration retry_down();

  const ConnectionType& type_;
  LoopState* state_;  // null once the loop has gone, or on the way to another
  Endpoint endpoint_;
  Settings settings_;
  const Quota quota_;
  ae::HandlerSlot<void(ConnectionPtr)> accepted_;
  ae::HandlerSlot<void(PendingConnectionPtr)> arrived_;  // a gate's, instead
  ae::HandlerSlot<void(const Failure&)> refused_;
  std::deque<Failure> refusals_;  // still to be told, as many as the backlog at most
  std::vector<std::unique_ptr<Port>> ports_;
  std::deque<std::unique_ptr<RdmaPending>> requests_;  // arrived while paused
  std::unordered_set<RdmaConnection*> young_;  // accepting, or established and not yet handed over
  std::vector<RdmaConnection*> established_;   // with room for all the young
  ae::TimerId retry_ = 0;
  bool paused_ = false, stopped_ = false;
};

/// A listener, or a gate.
class RdmaListener final : public PortListener {
 public:
  /// Throws Error.
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
