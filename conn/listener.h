// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A listener accepts connections until it is destroyed. Connections that it has handed out are not
// affected by its end.

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

/// Receives each connection once it is ready for data. Destroying the connection refuses it.
using AcceptHandler = std::function<void(ConnectionPtr)>;
/// Is told of a pending connection that did not become a connection, in a sentence that names the
/// peer.
using RefusedHandler = std::function<void(const Failure&)>;

/// A listener of any transport.
class AECONN_API Listener {
 public:
  Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  /// Stops listening; connections whose handshake is in progress are dropped. Allowed inside its
  /// own accept handler.
  virtual ~Listener() = default;

  virtual const ConnectionType& type() const noexcept = 0;  ///< the transport
  /// The actual addresses, one endpoint for each, with the port chosen by the kernel for port 0.
  virtual std::vector<Endpoint> endpoints() const = 0;
  /// Stops accepting; pending connections stay in the backlog. pause() and resume() are idempotent.
  virtual void pause() = 0;
  virtual void resume() = 0;  ///< accepts again after pause()
  /// Sets a handler for each pending connection beyond max-connections, and for each failed
  /// handshake (tls). Null removes it. The handler may do whatever an accept handler may do.
  virtual void on_refused(const RefusedHandler&) {}
  /// For a list of schemes: those that could not be served when listening began, each with the
  /// reason; a program should report them once. Empty for a single scheme.
  virtual std::vector<Skipped> not_served() const { return {}; }
};

using ListenerPtr = std::unique_ptr<Listener>;  ///< destroying it stops listening

}}  // namespace conn
