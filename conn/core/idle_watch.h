// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Fails a connection on which nothing is read or written for the time of option idle-timeout. It is
// allocated only for connections with that option. Reading and writing do nothing for it: a timer
// compares the connection's counters of bytes four times in each such time.

#include <cstdint>

#include "ae/abi.h"
#include "ae/event_loop.h"

namespace conn { inline namespace AECONN_ABI {

class ConnectionCore;

class IdleWatch {
 public:
  /// Begins to watch `connection`, which is on a loop, for a silence of `time`. Throws
  /// std::bad_alloc.
  IdleWatch(ConnectionCore& connection, ae::Duration time);
  ~IdleWatch();
  IdleWatch(const IdleWatch&) = delete;
  IdleWatch& operator=(const IdleWatch&) = delete;

  ae::Duration time() const noexcept { return time_; }  ///< the silence that ends the connection

 private:
  ae::Duration look();
  std::uint64_t bytes() const noexcept;

  ConnectionCore& connection_;
  ae::EventLoop& loop_;
  const ae::Duration time_, step_;
  std::uint64_t seen_;
  unsigned quiet_ = 0;  // number of steps in which no byte was read or written
  ae::TimerId timer_;
};

}}  // namespace conn
