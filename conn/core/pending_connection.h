// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Connections on their way to the loop that will serve them: what a transport adds so that one
// port can serve several loops. Host programs use conn/listener_group.h.
//
//   PortListener       listens, on one loop; what comes in it hands out before it begins
//   PendingConnection    one of these: an accepted socket, a request of rdma_cm
//   LoopAcceptor   the other end, one on each loop: begins arrivals there, TLS handshake and queue
//   pair
//              included, and hands over what is ready
//   Handoff       what the gate's thread has to do to an arrival before another thread may touch it

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "conn/kit/quota.h"
#include "conn/listener.h"

namespace conn { inline namespace AECONN_ABI {

/// Not begun: no handshake, nothing of a device. Belongs to one thread at a time. Dropping it
/// refuses it.
class AECONN_API PendingConnection {
 public:
  PendingConnection() = default;
  PendingConnection(const PendingConnection&) = delete;
  PendingConnection& operator=(const PendingConnection&) = delete;
  virtual ~PendingConnection() = default;
  virtual std::string peer() const = 0;  ///< "10.0.0.1:40112", for people
  /// Tells the peer why, where the transport can; it is dropped next.
  virtual void refuse(std::string_view /*why*/) noexcept {}

  Quota::Place place;                ///< goes to the connection, with occupy()
  std::shared_ptr<const void> slot;  ///< of those that wait; goes with the arrival
};
using PendingConnectionPtr = std::unique_ptr<PendingConnection>;  ///< owns one that is under way
/// Runs on the gate's loop, where no handler of a program may run yet.
using PendingHandler = std::function<void(PendingConnectionPtr)>;

/// The way to one receiver. Any thread may hold it; it may outlive the receiver and its loop.
class AECONN_API Handoff {
 public:
  Handoff() = default;
  Handoff(const Handoff&) = delete;
  Handoff& operator=(const Handoff&) = delete;
  virtual ~Handoff() = default;
  /// On the thread the arrival is on. False: it cannot go there, and stays whole.
  virtual bool pass(PendingConnection&) const noexcept { return true; }
};

/// A listener that begins what arrives on its loop, wherever the gate is.
class AECONN_API LoopAcceptor : public Listener {
 public:
  /// Begins it, or keeps it while paused. On the loop's thread. Where there is no memory for it, it
  /// is counted and lost; throws what an accept handler throws.
  virtual void arrive(PendingConnectionPtr arrival) = 0;
  /// The next of those it keeps, when the loop is about to go; null if there is none.
  virtual PendingConnectionPtr give_back() noexcept = 0;
  /// Tells on_refused()'s handler of an arrival that the gate refused, from where one may run.
  virtual void refused(const Failure& why) = 0;
  /// An arrival was refused, or lost, before it came here: a transport counts it as one of its own
  /// listener's. On the loop's thread.
  virtual void count_rejected() noexcept {}
  /// Null where nothing has to be done.
  virtual std::shared_ptr<const Handoff> handoff() const { return nullptr; }
  std::vector<Endpoint> endpoints() const override { return {}; }
};
using LoopAcceptorPtr = std::unique_ptr<LoopAcceptor>;  ///< owns a receiver

/// A listener that can go to another loop, with what waits in its backlog.
class AECONN_API PortListener : public Listener {
 public:
  /// The option max-connections, for who takes what it hands out: it refuses nobody itself.
  virtual std::uint64_t max_connections() const = 0;
  /// Off its loop, whose end is near; nothing happens until arrive(). Once more, for another, if
  /// nobody is there. False: it cannot go. On the old loop's thread.
  virtual bool leave(const Handoff* to) noexcept = 0;
  /// On the new loop's thread. Throws Error or std::bad_alloc: it listens no more.
  virtual void arrive(ae::EventLoop& loop) = 0;
  /// Processors (numbers as of sched_setaffinity(2)) that are near the device it listens on; empty
  /// where that is not known, or it is on no device; -1 for several devices.
  virtual std::vector<int> near_processors() const { return {}; }
};
using PortListenerPtr = std::unique_ptr<PortListener>;  ///< owns a gate

}}  // namespace conn
