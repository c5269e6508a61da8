// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Accepts connections until it is destroyed. Connections it gave away live on.

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

/// Gets each connection once it is ready for data. Dropping it refuses it.
using AcceptHandler = std::function<void(ConnectionPtr)>;
/// Is told of an arrival that did not become a connection, in a sentence that names the peer.
using RefusedHandler = std::function<void(const Failure&)>;

/// Something that accepts, of whatever transport.
class AECONN_API Listener {
 public:
  Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  /// Stops listening; a connection whose handshake is still running is dropped. Allowed inside its
  /// own accept handler.
  virtual ~Listener() = default;

  virtual const ConnectionType& type() const noexcept = 0;  ///< the transport
  /// What it really listens on, one for each address, with the port the kernel chose for port 0.
  virtual std::vector<Endpoint> endpoints() const = 0;
  /// Leaves arrivals in the backlog until resume(). Both may be repeated.
  virtual void pause() = 0;
  virtual void resume() = 0;  ///< ends pause()
  /// Tells of each arrival beyond max-connections, and of each handshake that failed where there is
  /// one (tls). Null removes. The handler may do what an accept handler may.
  virtual void on_refused(const RefusedHandler&) {}
  /// Of a list of schemes: those that could not be had when listening began, each with why. A
  /// program says so, once. Empty for a single scheme.
  virtual std::vector<Skipped> not_served() const { return {}; }
};

using ListenerPtr = std::unique_ptr<Listener>;  ///< dropping it ends listening

}}  // namespace conn
