#pragma once
// rdma:// listening: one rdma_cm id for each bind address, requests accepted from rdma_cm events,
// connections handed over from the ready list, a batch at a time.

#include <deque>
#include <memory>
#include <unordered_set>
#include <vector>

#include "ae/handler_slot.h"
#include "conn/listener.h"
#include "conn/rdma/connection.h"
#include "conn/rdma/loop_state.h"
#include "conn/resolver.h"

namespace conn::rdma {

/// The inside of a listener; it outlives a handler that destroys the listener.
class ListenerCore final : public ae::Deferred, public ReadyItem {
 public:
  /// Throws Error.
  ListenerCore(const ConnectionType& type, LoopState& state, const Endpoint& endpoint,
               const Settings& settings, AcceptHandler accepted);
  ~ListenerCore() override;
  void stop() noexcept;
  /// Stops; afterwards nothing here touches the loop.
  void loop_gone() noexcept;
  ae::EventLoop* loop() const noexcept { return state_ != nullptr ? &state_->loop() : nullptr; }

  const ConnectionType& type() const noexcept { return type_; }
  std::vector<Endpoint> endpoints() const;
  void pause() noexcept { paused_ = true; }
  void resume();
  void on_refused(const RefusedHandler& handler) { refused_.set(handler); }

  /// From a connection of ours: it is ready for data; or it died before it was handed over.
  void on_established(RdmaConnection& connection) noexcept;
  void on_lost(RdmaConnection& connection) noexcept;
  /// Looks for devices that went, if there was no memory for it when they did.
  void retry_if_down() noexcept;
  /// A request that waits here has lost its sender or its device.
  void drop_request(const rdma_cm_id* id) noexcept;

 private:
  class Port;  // one bind address
  struct Request {
    CmId id;
    std::vector<std::byte> private_data;
  };

  std::size_t run_ready() override;
  void on_request(const CmEvent& event);
  void take(Request request);
  void accept(Request request);
  void accept_waiting();
  void schedule_retry() noexcept;
  ae::Duration retry_down();

  const ConnectionType& type_;
  LoopState* state_;
  Endpoint endpoint_;
  Settings settings_;
  const Quota quota_;
  AcceptHandler accepted_;
  ae::HandlerSlot<void(const Failure&)> refused_;
  std::deque<Failure> refusals_;  // still to be told, as many as the backlog at most
  std::vector<std::unique_ptr<Port>> ports_;
  std::deque<Request> requests_;               // arrived while paused
  std::unordered_set<RdmaConnection*> young_;  // accepting, or established and not yet handed over
  std::vector<RdmaConnection*> established_;   // with room for all the young
  ae::TimerId retry_ = 0;
  bool paused_ = false, stopped_ = false;
};

class RdmaListener final : public Listener {
 public:
  /// Throws Error.
  RdmaListener(const ConnectionType& type, LoopState& state, const Endpoint& endpoint,
               const Settings& settings, AcceptHandler accepted);
  ~RdmaListener() override;

  const ConnectionType& type() const noexcept override { return core_->type(); }
  std::vector<Endpoint> endpoints() const override { return core_->endpoints(); }
  void pause() override { core_->pause(); }
  void resume() override { core_->resume(); }
  void on_refused(const RefusedHandler& handler) override { core_->on_refused(handler); }

 private:
  std::unique_ptr<ListenerCore> core_;
};

}  // namespace conn::rdma
