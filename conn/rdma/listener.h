// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Listening on rdma://: one rdma_cm id for each bind address. Requests are accepted from rdma_cm
// events; established connections are handed over from the ready list, in batches.

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

/// Handlers: of connections once they are established, or, for a port listener, of requests.
struct ListenTo {
  AcceptHandler accepted = nullptr;
  PendingHandler arrived = nullptr;
};

/// Implementation of a listener, a port listener and a loop's acceptor (which listens on no address
/// of its own). Outlives a handler that destroys the listener.
class ListenerCore final : public ae::Deferred,
                           public ReadyItem,
                           public LoopListener,
                           public AcceptOwner {
 public:
  ListenerCore(const ConnectionType& type, LoopState& state, const Settings& settings, ListenTo to);
  ~ListenerCore() override;
  /// Starts to listen. Throws Error.
  void listen(const Endpoint& endpoint);
  void stop() noexcept;
  void loop_gone() noexcept override;
  ae::EventLoop* loop() const noexcept { return state_ != nullptr ? &state_->loop() : nullptr; }

  const ConnectionType& type() const noexcept { return type_; }
  std::vector<Endpoint> endpoints() const;
  void pause() noexcept { paused_ = true; }
  void resume();
  void on_refused(const RefusedHandler& handler) { refused_.set(handler); }
  /// Queues `why` for the refused handler, which runs from the ready list.
  void refused(const Failure& why);
  const Quota& quota() const noexcept { return quota_; }

  /// Port listener: moves it from its loop to another. Requests received so far are read first or
  /// move along; connections attempted in between find no listener.
  void leave(const std::shared_ptr<CmChannel>& to) noexcept;
  void arrive(LoopState& state);
  /// Loop's acceptor: takes a request from the port listener, and gives one back.
  void take(std::unique_ptr<RdmaPending> request);
  std::unique_ptr<RdmaPending> give_back() noexcept;
  const Settings& settings() const noexcept override { return settings_; }
  bool wishes_prepared() const noexcept override { return settings_.prepared != 0 && !arrived_; }
  /// On any, for a loop's acceptor and for "*".
  bool is_on(const std::string& device) const override;
  /// Names of the devices that its addresses belong to.
  std::set<std::string> devices() const;

  void retry_if_down() noexcept override;
  void drop_request(const rdma_cm_id* id) noexcept override;
  /// Counts a request that was refused before it reached this object.
  void count_rejected() noexcept;

 private:
  class Port;  // one bind address

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
  LoopState* state_;  // null once the loop is gone, or while moving to another
  Endpoint endpoint_;
  Settings settings_;
  const Quota quota_;
  ae::HandlerSlot<void(ConnectionPtr)> accepted_;
  ae::HandlerSlot<void(PendingConnectionPtr)> arrived_;  // port listener: instead of accepted_
  ae::HandlerSlot<void(const Failure&)> refused_;
  std::deque<Failure> refusals_;  // not yet reported, at most as many as the backlog
  std::vector<std::unique_ptr<Port>> ports_;
  std::deque<std::unique_ptr<RdmaPending>> requests_;  // arrived while paused
  // Accepting, or established and not handed over.
  std::unordered_map<LinkedCarrier*, ConnectionPtr> young_;
  std::vector<LinkedCarrier*> established_;  // has capacity for all of young_
  ae::TimerId retry_ = 0;
  bool paused_ = false, stopped_ = false;
};

/// A listener or a port listener.
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
