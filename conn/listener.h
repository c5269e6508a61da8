#pragma once
// Accepts connections until it is destroyed. Connections it gave away live on.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "conn/connection.h"
#include "conn/endpoint.h"
#include "conn/error.h"

namespace conn {

/// Gets each connection once it is ready for data. Dropping it refuses it.
using AcceptHandler = std::function<void(ConnectionPtr)>;
/// Is told of an arrival that did not become a connection, in a sentence that names the peer.
using RefusedHandler = std::function<void(const Failure&)>;

class Listener {
 public:
  Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  /// Stops listening; a connection whose handshake is still running is dropped. Allowed inside its
  /// own accept handler.
  virtual ~Listener() = default;

  virtual const ConnectionType& type() const noexcept = 0;
  /// What it really listens on, one for each address, with the port the kernel chose for port 0.
  virtual std::vector<Endpoint> endpoints() const = 0;
  /// Leaves arrivals in the backlog until resume(). Both may be repeated.
  virtual void pause() = 0;
  virtual void resume() = 0;
  /// Tells of each arrival beyond max-connections, and of each handshake that failed where there is
  /// one (tls). Null removes. The handler may do what an accept handler may.
  virtual void on_refused(const RefusedHandler&) {}
};

using ListenerPtr = std::unique_ptr<Listener>;

}  // namespace conn
