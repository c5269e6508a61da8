// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Payloads that are sent from where they lie: in memory that the transport's devices read.

#include <sys/uio.h>

#include <cstddef>
#include <span>

#include "ae/event_loop.h"
#include "conn/connection.h"
#include "outbox.h"

namespace perf {

/// One for all connections of a loop that use the same transport. The memory goes with the last of
/// what was sent from it.
class FromPlace {
 public:
  FromPlace() = default;
  FromPlace(const FromPlace&) = delete;
  FromPlace& operator=(const FromPlace&) = delete;
  ~FromPlace() { leave(); }

  /// As connection.writev(), without a copy of what is `payload`'s. Throws std::bad_alloc.
  ssize_t write(conn::Connection& connection, ae::EventLoop& loop, const Payload& payload,
                std::span<const iovec> vectors);

 private:
  struct Place;
  void leave() noexcept;
  Place* place_ = nullptr;
};

}  // namespace perf
