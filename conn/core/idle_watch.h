// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// IdleWatch: fails a connection on which nothing is read or written for the time of option
// idle-timeout. An IdleWatch is allocated only for connections with that option. Reading and
// writing do not notify it: instead a timer compares the connection's byte counters four times
// within each idle-timeout.

#include <cstdint>

#include "ae/abi.h"
#include "ae/event_loop.h"

namespace conn { inline namespace AECONN_ABI {

class ConnectionCore;

class IdleWatch {
 public:
  /// Begins to watch `connection`, which must be on a loop, and fails it after `time` without a
  /// byte. Throws std::bad_alloc.
  IdleWatch(ConnectionCore& connection, ae::Duration time);
  ~IdleWatch();
  IdleWatch(const IdleWatch&) = delete;
  IdleWatch& operator=(const IdleWatch&) = delete;

  /// Starts or stops watching `connection`, depending on its option and its state. To be called
  /// after the state, the Carrier or the loop has changed. If there is no memory for the watch, the
  /// connection fails.
  static void follow(ConnectionCore& connection) noexcept;

 private:
  ae::Duration look();
  void fail() noexcept;
  std::uint64_t bytes() const noexcept;

  ConnectionCore& connection_;
  ae::EventLoop& loop_;
  const ae::Duration time_, step_;
  std::uint64_t seen_;
  unsigned quiet_ = 0;  // number of steps in a row in which no byte was read or written
  ae::TimerId timer_;
};

}}  // namespace conn
