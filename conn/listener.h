#pragma once
// Accepts connections until it is destroyed. Connections it gave away live on.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "conn/connection.h"
#include "conn/endpoint.h"

namespace conn {

/// Gets each connection once it is ready for data. Dropping it refuses it.
using AcceptHandler = std::function<void(ConnectionPtr)>;

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
};

using ListenerPtr = std::unique_ptr<Listener>;

}  // namespace conn
