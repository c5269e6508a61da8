// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The listening side of TLS: takes connections from the listener below, runs their handshakes and
// passes the connections whose handshakes succeed to the accept handler.

#include <list>
#include <memory>

#include "ae/abi.h"
#include "conn/core/acceptor_base.h"
#include "conn/tls/context_source.h"
#include "conn/tls/handshake.h"
#include "conn/tls/loop_state.h"
#include "conn/tls/reloader.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

class TlsType;

class Acceptor final : public AcceptorBase, public HandshakeOwner {
 public:
  Acceptor(const TlsType& type, LoopState& shared, std::shared_ptr<const ContextSource> contexts,
           AcceptHandler accepted);
  /// Starts what handshakes need: threads, and watching files. Throws Error. To be called before
  /// the listener below TLS is opened, so that a failure leaves nothing behind.
  void start();
  /// Takes over the open listener `below`, which must pass its connections to arrived().
  void take_from(ListenerPtr below);

  void arrived(ConnectionPtr below);
  void finished(Place place) override;
  void failed(Place place, const Failure& failure) override;

 private:
  void on_stop(bool loop_ends) noexcept override;
  void set_listening(bool wanted) override;
  std::size_t run_ready() override;
  ConnectionPtr take(Place place);
  void count_arrival();
  void end_iteration();
  bool full() const;
  void check_room();
  bool let_in();

  LoopState& shared_;
  const std::shared_ptr<const ContextSource> contexts_;
  Reloader reloader_;
  std::list<OwnedHandshake> handshakes_;  // connections whose handshakes run, oldest first
  unsigned max_handshakes_ = 1;
  // Number of connections that the listener below TLS has passed on in this iteration.
  unsigned arrivals_ = 0;
  // True if the listener below TLS is paused because it has passed on kArrivalsPerIteration
  // connections in one iteration.
  bool resting_ = false;
  // True if the listener below TLS is paused because max-handshakes handshakes run.
  bool waiting_ = false;
  ae::TimerId room_timer_ = 0;
};

/// The TLS acceptor of one loop: runs handshakes on the connections of the acceptor below.
class TlsLoopAcceptor final : public AcceptingListener {
 public:
  /// `below` is the acceptor of the layer below TLS, from which `acceptor` takes its connections.
  /// `acceptor` must own it.
  TlsLoopAcceptor(AcceptorPtr<> acceptor, LoopAcceptor& below) noexcept
      : AcceptingListener(std::move(acceptor)), below_(below) {}

  void arrive(PendingConnectionPtr arrival) override { below_.arrive(std::move(arrival)); }
  PendingConnectionPtr give_back() noexcept override { return below_.give_back(); }
  void refused(const Failure& why) override { below_.refused(why); }
  void count_rejected() noexcept override { below_.count_rejected(); }
  std::shared_ptr<const Handoff> handoff() const override { return below_.handoff(); }

 private:
  LoopAcceptor& below_;
};

}}}  // namespace conn::tls
