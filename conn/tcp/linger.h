// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Delivers the remaining output of a socket after close(). If a closed socket has unread bytes or
// receives more, the kernel answers with a reset: the peer sees an error instead of end of stream,
// and on some systems even loses bytes it had not read yet. So the write side is closed first, and
// input is read and discarded until the peer has everything.

#include <functional>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/tcp/socket.h"
#include "conn/tcp/zero_copy_ledger.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

/// Returns true if a plain close() loses nothing: no input is unread, and either the peer has
/// acknowledged all output or it has announced that it sends no more (`peer_done`). In the second
/// case no further input can provoke a reset, so the kernel delivers the rest by itself.
bool closes_clean(int fd, bool peer_done) noexcept;

/// Blocks until the peer's kernel has received everything that was written to the TCP socket `fd`
/// or the peer is gone, at most until `until`. Discards input meanwhile, so that a subsequent
/// close() provokes no reset. Returns true if waiting longer would change nothing. `ledger` is not
/// null if the kernel may still read memory of the program (zero-copy sends): their completions are
/// then read meanwhile, and the wait continues after the peer's end of stream, since the kernel
/// still reads that memory.
bool deliver(int fd, ae::TimePoint until, ZeroCopyLedger* ledger = nullptr) noexcept;

/// Delivers the unsent bytes of a closed TCP connection, within `limit`, without blocking. The
/// socket `fd` must stay open as long as this object exists. `done` runs once, from the loop, and
/// may destroy the Linger; it does not run if the Linger is destroyed earlier. `ledger` must
/// outlive this object. It is not null if the kernel may still read memory of the program
/// (zero-copy sends): delivery then goes on after the peer's end of stream.
class Linger {
 public:
  using Done = std::function<void()>;
  Linger(ae::EventLoop& loop, int fd, ae::Duration limit, ZeroCopyLedger* ledger, Done done);
  void start();
  /// Blocks as deliver() does, until the rest is delivered or `until` has passed; called when the
  /// loop ends. Returns true if waiting longer would change nothing.
  bool drain(ae::TimePoint until) noexcept { return over_ || deliver(fd_, until, ledger_); }
  ~Linger();
  Linger(const Linger&) = delete;
  Linger& operator=(const Linger&) = delete;

 private:
  void readable();
  ae::Duration tick();
  void stop() noexcept;
  void finish();

  ae::EventLoop& loop_;
  const int fd_;
  ae::TimePoint deadline_;
  ZeroCopyLedger* ledger_;
  Done done_;
  ae::Duration delay_;
  ae::TimerId timer_ = 0;
  bool peer_sends_ = false;  // true if there was unread input of the peer, or input was discarded
  // True if the peer's end of stream was read while the kernel still used lent memory.
  bool peer_ended_ = false;
  bool over_ = false;           // true if `done` has been called
  ae::TimePoint last_arrival_;  // time at which input was last discarded, or lingering began
};

}}}  // namespace conn::tcp
