// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Sends payloads in place: from memory registered with the transport's devices.

#include <sys/uio.h>

#include <cstddef>
#include <span>

#include "ae/event_loop.h"
#include "conn/connection.h"
#include "outbox.h"

namespace perf {

/// Memory to send from in place, shared by all connections of a loop that use the same transport.
/// It is released after the last send from it completes.
class FromPlace {
 public:
  FromPlace() = default;
  FromPlace(const FromPlace&) = delete;
  FromPlace& operator=(const FromPlace&) = delete;
  ~FromPlace() { leave(); }

  /// Like connection.writev(), but bytes of `payload` are not copied. Throws std::bad_alloc.
  ssize_t write(conn::Connection& connection, ae::EventLoop& loop, const Payload& payload,
                std::span<const iovec> vectors);

 private:
  struct Place;
  void leave() noexcept;
  Place* place_ = nullptr;
};

}  // namespace perf
