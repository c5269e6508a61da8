// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The interfaces that let one port serve several loops: a transport implements them to pass
// connections that are not set up yet to the loop that will serve them. Host programs use
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

/// A connection whose set-up has not begun: no handshake, no device resources. It belongs to one
/// thread at a time. Destroying it refuses the peer.
class AECONN_API PendingConnection {
 public:
  PendingConnection() = default;
  PendingConnection(const PendingConnection&) = delete;
  PendingConnection& operator=(const PendingConnection&) = delete;
  virtual ~PendingConnection() = default;
  virtual std::string peer() const = 0;  ///< "10.0.0.1:40112", for people
  /// Tells the peer the reason, if the transport can. The caller destroys the object next.
  virtual void refuse(std::string_view /*why*/) noexcept {}

  Quota::Place place;                ///< moves to the connection with occupy()
  std::shared_ptr<const void> slot;  ///< place among those that wait for a loop
};
using PendingConnectionPtr = std::unique_ptr<PendingConnection>;  ///< owning pointer
/// Runs on the port listener's loop, at a point where handlers of the program must not run.
using PendingHandler = std::function<void(PendingConnectionPtr)>;

/// Prepares pending connections for one acceptor. Any thread may hold it; it may outlive the
/// acceptor and its loop.
class AECONN_API Handoff {
 public:
  Handoff() = default;
  Handoff(const Handoff&) = delete;
  Handoff& operator=(const Handoff&) = delete;
  virtual ~Handoff() = default;
  /// Call on the thread that owns the pending connection. False: it cannot move, and is unchanged.
  virtual bool pass(PendingConnection&) const noexcept { return true; }
};

/// Accepts on one loop: a listener that sets up pending connections on its loop, independent of the
/// port listener's location.
class AECONN_API LoopAcceptor : public Listener {
 public:
  /// Starts the set-up, or keeps the pending connection while paused. On the loop's thread. Without
  /// memory for it, it is counted and lost. Throws what an accept handler throws.
  virtual void arrive(PendingConnectionPtr arrival) = 0;
  /// Returns the next one kept while paused, when the loop is about to end; null if there is none.
  virtual PendingConnectionPtr give_back() noexcept = 0;
  /// Runs the handler of on_refused() for a pending connection that the port listener refused, at a
  /// point where handlers may run.
  virtual void refused(const Failure& why) = 0;
  /// Called when a pending connection was refused or lost before it came here, so that a transport
  /// can count it as rejected by its own listener. On the loop's thread.
  virtual void count_rejected() noexcept {}
  /// Null if a pending connection needs no preparation.
  virtual std::shared_ptr<const Handoff> handoff() const { return nullptr; }
  std::vector<Endpoint> endpoints() const override { return {}; }
};
using LoopAcceptorPtr = std::unique_ptr<LoopAcceptor>;  ///< owning pointer

/// A listener that can move to another loop, together with the pending connections in its backlog.
class AECONN_API PortListener : public Listener {
 public:
  /// Option max-connections, for the user of this class: the port listener does not enforce it.
  virtual std::uint64_t max_connections() const = 0;
  /// Detaches from its loop, which is about to end, and does nothing until arrive(). Called again,
  /// for another loop, if the target loop has ended. Returns false if it cannot move. On the old
  /// loop's thread.
  virtual bool leave(const Handoff* to) noexcept = 0;
  /// Call on the new loop's thread. If it throws Error or std::bad_alloc, it no longer listens.
  virtual void arrive(ae::EventLoop& loop) = 0;
  /// Processors (numbered as for sched_setaffinity(2)) near the device it listens on. Empty if
  /// unknown or not on a device; contains -1 for several devices.
  virtual std::vector<int> near_processors() const { return {}; }
};
using PortListenerPtr = std::unique_ptr<PortListener>;  ///< owning pointer

}}  // namespace conn
