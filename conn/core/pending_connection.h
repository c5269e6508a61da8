// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The interfaces that let one port serve several loops. A transport implements them, so that a
// connection can be passed to the loop that will serve it before it is set up. Host programs use
// conn/listener_group.h.
//
//   PortListener       listens on one loop, and hands out pending connections
//   PendingConnection  an accepted socket, or a connection request of rdma_cm, before its set-up
//   LoopAcceptor       accepts on one loop: sets up pending connections, including TLS handshake
//                      and queue pair, and hands over connections that are ready
//   Handoff            prepares a pending connection, on the port listener's thread, for use by
//                      another thread

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "conn/kit/quota.h"
#include "conn/listener.h"

namespace conn { inline namespace AECONN_ABI {

/// A connection whose set-up has not begun: there is no handshake yet, and no device resources. It
/// belongs to one thread at a time. Destroying it refuses the peer.
class AECONN_API PendingConnection {
 public:
  PendingConnection() = default;
  PendingConnection(const PendingConnection&) = delete;
  PendingConnection& operator=(const PendingConnection&) = delete;
  virtual ~PendingConnection() = default;
  virtual std::string peer() const = 0;  ///< address of the peer, "10.0.0.1:40112", for people
  /// Sends the peer the reason why it is refused, if the transport can. The caller destroys this
  /// object next.
  virtual void refuse(std::string_view /*why*/) noexcept {}

  /// Counts this connection in the listener's quota (option max-connections). The transport passes
  /// it on to the connection with CarrierHost::occupy().
  Quota::Place place;
  /// While this object exists, the connection counts among those that wait for their loop; null: it
  /// is not counted.
  std::shared_ptr<const void> slot;
};
/// Owns a pending connection; destroying it refuses the peer.
using PendingConnectionPtr = std::unique_ptr<PendingConnection>;
/// Called with each new pending connection on the port listener's loop, at a point where handlers
/// of the program must not run.
using PendingHandler = std::function<void(PendingConnectionPtr)>;

/// Prepares pending connections for the thread of one acceptor. References to it may be kept on any
/// thread; it may outlive the acceptor and its loop.
class AECONN_API Handoff {
 public:
  Handoff() = default;
  Handoff(const Handoff&) = delete;
  Handoff& operator=(const Handoff&) = delete;
  virtual ~Handoff() = default;
  /// Prepares the pending connection for another thread. To be called on the thread that owns it.
  /// Returns false, and leaves the pending connection unchanged, if it cannot be moved.
  virtual bool pass(PendingConnection&) const noexcept { return true; }
};

/// A listener that accepts on one loop: it sets up pending connections on its own loop, wherever
/// the port listener is.
class AECONN_API LoopAcceptor : public Listener {
 public:
  /// Starts the set-up of a pending connection; while the acceptor is paused, queues the connection
  /// instead. Called on the loop's thread. If there is no memory for the set-up, the connection is
  /// counted as lost. Throws the exceptions of an accept handler.
  virtual void arrive(PendingConnectionPtr arrival) = 0;
  /// Called when the loop is about to end. Removes and returns one of the pending connections whose
  /// set-up has not begun; null if there are no more.
  virtual PendingConnectionPtr give_back() noexcept = 0;
  /// Runs the handler of on_refused() for a pending connection that the port listener has refused.
  /// Called at a point where handlers may run.
  virtual void refused(const Failure& why) = 0;
  /// Called on the loop's thread when a pending connection was refused or lost before it reached
  /// this acceptor, so that the transport can count it like one rejected by its own listener.
  virtual void count_rejected() noexcept {}
  /// Returns the object that prepares pending connections for this acceptor's thread; null: no
  /// preparation is needed.
  virtual std::shared_ptr<const Handoff> handoff() const { return nullptr; }
  std::vector<Endpoint> endpoints() const override { return {}; }
};
using LoopAcceptorPtr = std::unique_ptr<LoopAcceptor>;  ///< owns an acceptor of one loop

/// A listener on a port that can move to another loop, together with the pending connections in its
/// backlog.
class AECONN_API PortListener : public Listener {
 public:
  /// Returns the value of option max-connections. The port listener itself does not enforce this
  /// limit; the object that uses the listener does.
  virtual std::uint64_t max_connections() const = 0;
  /// Detaches the listener from its loop, which is about to end; it then does nothing until
  /// arrive(). `to` is the handoff() of the new loop's acceptor. Called again, for another loop, if
  /// the target loop has ended meanwhile. Called on the old loop's thread. Returns false if the
  /// listener cannot move.
  virtual bool leave(const Handoff* to) noexcept = 0;
  /// Continues on another loop. Called on the new loop's thread. If this function throws Error or
  /// std::bad_alloc, the listener no longer listens.
  virtual void arrive(ae::EventLoop& loop) = 0;
  /// The processors (numbered as for sched_setaffinity(2)) near the device on which this object
  /// listens. Empty if they are unknown or there is no device; contains -1 if there are several
  /// devices.
  virtual std::vector<int> near_processors() const { return {}; }
};
/// Owns a port listener; destroying it stops listening.
using PortListenerPtr = std::unique_ptr<PortListener>;

}}  // namespace conn
