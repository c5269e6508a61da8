// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Listener: accepts connections until it is destroyed. Connections that it has already passed to
// its accept handler live on.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "conn/connection.h"
#include "conn/endpoint.h"
#include "conn/error.h"
#include "conn/fallback.h"

namespace conn { inline namespace AECONN_ABI {

/// A function called with each new connection once it is ready for data. To refuse a connection,
/// the function destroys it.
using AcceptHandler = std::function<void(ConnectionPtr)>;
/// A function called when a peer's attempt to connect to a listener was refused or failed. The text
/// of the `Failure` is a sentence that names the peer.
using RefusedHandler = std::function<void(const Failure&)>;

/// Accepts the connections of one transport on an address.
class AECONN_API Listener {
 public:
  Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  /// Stops listening, and drops connections whose handshake is in progress. A listener may be
  /// destroyed inside its own accept handler.
  virtual ~Listener() = default;

  /// The transport whose connections this listener accepts.
  virtual const ConnectionType& type() const noexcept = 0;
  /// Returns one endpoint for each address on which this object listens. If the URL had port 0, the
  /// endpoint has the port that the kernel chose.
  virtual std::vector<Endpoint> endpoints() const = 0;
  /// Stops accepting; pending connections stay in the backlog until resume(). Repeated calls of
  /// pause() or resume() have no effect.
  virtual void pause() = 0;
  virtual void resume() = 0;  ///< starts accepting again after pause(); no effect if not paused
  /// Pauses like pause(), but says that the pause will soon end by itself, for example when a queue
  /// has room again: a graceful stop (conn/stop.h) then waits a while for resume().
  virtual void hold_back() { pause(); }
  /// Sets a handler that is called for each pending connection beyond max-connections, each failed
  /// TLS handshake, each failed reload of TLS files, and each invalid PROXY header. It is also
  /// called when clients have to wait because descriptors or memory are missing: once, and not
  /// again before all waiting clients were accepted. Null removes the handler. The handler may do
  /// whatever an accept handler may do.
  virtual void on_refused(const RefusedHandler&) {}
  /// For a list of schemes, returns those schemes for which listening failed, each with the reason;
  /// a program should report them once. Empty for a single scheme.
  virtual std::vector<Skipped> not_served() const { return {}; }
};

using ListenerPtr = std::unique_ptr<Listener>;  ///< owns a listener; destroying it stops listening

}}  // namespace conn
