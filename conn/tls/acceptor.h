// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The listening side of TLS: takes connections from the listener below, runs their handshakes and
// passes the connections whose handshakes succeed to the accept handler.

#include <list>
#include <memory>

#include "ae/abi.h"
#include "ae/core/handler_slot.h"
#include "conn/core/pending_connection.h"
#include "conn/core/refusals.h"
#include "conn/kit/ready_list.h"
#include "conn/tls/context_source.h"
#include "conn/tls/handshake.h"
#include "conn/tls/loop_state.h"
#include "conn/tls/reloader.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

class TlsType;

/// The part of a TlsListener that may still be running when a handler destroys the listener.
class Acceptor final : public ae::Deferred,
                       public ReadyItem,
                       public HandshakeOwner,
                       private Stoppable {
 public:
  Acceptor(const TlsType& type, LoopState& shared, std::shared_ptr<const ContextSource> contexts,
           AcceptHandler accepted);
  ~Acceptor() override { stop(); }
  /// Starts what handshakes need: threads, and watching files. Throws Error. To be called before
  /// the listener below is opened, so that a failure leaves nothing behind.
  void start();
  /// Takes over the open listener `below`, which must pass its connections to arrived().
  void listen_on(ListenerPtr below);
  /// Stops listening and ends all handshakes; no handler runs afterwards.
  void stop() noexcept override;

  void arrived(ConnectionPtr below);
  void finished(Place place) override;
  void failed(Place place, const Failure& failure) override;

  void pause();
  void resume();
  void on_refused(const RefusedHandler& handler) { refused_.set(handler); }
  LoopState* shared() const noexcept { return shared_; }
  const Listener* below() const noexcept { return below_.get(); }

 private:
  std::size_t run_ready() override;
  ConnectionPtr take(Place place);
  void hand_over(ConnectionPtr owner);
  void count_arrival();
  void end_iteration();
  bool full() const;
  void check_room();
  bool let_in();

  const TlsType& type_;
  LoopState* shared_;       // state that the TLS type keeps for the loop; null once stopped
  LoopCounters& counters_;  // looked up once, since the look-up may allocate memory
  const std::shared_ptr<const ContextSource> contexts_;
  ListenerPtr below_;
  ae::HandlerSlot<void(ConnectionPtr)> accepted_;
  Refusals refused_;
  Reloader reloader_;
  std::list<OwnedHandshake> handshakes_;  // connections whose handshakes run, oldest first
  // established connections that wait for the accept handler, while paused or while it runs
  std::list<OwnedHandshake> done_;
  unsigned max_handshakes_ = 1;
  unsigned arrivals_ = 0;  // connections taken from the listener below in this iteration
  bool paused_ = false;
  // whether the listener below is paused because an iteration has taken enough of its connections
  bool resting_ = false;
  // whether the listener below is paused because max-handshakes handshakes run
  bool waiting_ = false;
  ae::TimerId room_timer_ = 0;
};

class TlsListener final : public Listener {
 public:
  TlsListener(const TlsType& type, std::unique_ptr<Acceptor> acceptor);
  ~TlsListener() override;

  const ConnectionType& type() const noexcept override { return type_; }
  std::vector<Endpoint> endpoints() const override;
  void pause() override { acceptor_->pause(); }
  void resume() override { acceptor_->resume(); }
  void on_refused(const RefusedHandler& handler) override { acceptor_->on_refused(handler); }

 private:
  const ConnectionType& type_;
  std::unique_ptr<Acceptor> acceptor_;
};

/// The TLS acceptor of one loop: runs handshakes on the connections of the acceptor below.
class TlsLoopAcceptor final : public LoopAcceptor {
 public:
  /// `below` must be the acceptor that `listener` takes its connections from; `listener` owns it.
  TlsLoopAcceptor(std::unique_ptr<TlsListener> listener, LoopAcceptor& below)
      : listener_(std::move(listener)), below_(below) {}

  const ConnectionType& type() const noexcept override { return listener_->type(); }
  void pause() override { listener_->pause(); }
  void resume() override { listener_->resume(); }
  void on_refused(const RefusedHandler& handler) override { listener_->on_refused(handler); }
  void arrive(PendingConnectionPtr arrival) override { below_.arrive(std::move(arrival)); }
  PendingConnectionPtr give_back() noexcept override { return below_.give_back(); }
  void refused(const Failure& why) override { below_.refused(why); }
  void count_rejected() noexcept override { below_.count_rejected(); }
  std::shared_ptr<const Handoff> handoff() const override { return below_.handoff(); }

 private:
  const std::unique_ptr<TlsListener> listener_;
  LoopAcceptor& below_;
};

}}}  // namespace conn::tls
