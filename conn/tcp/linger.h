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

/// True if a plain close() loses nothing: no input is unread, and all output is acknowledged or the
/// peer has said that it sends no more (`peer_done`). In the latter case the kernel delivers the
/// rest by itself, because no further input can provoke a reset.
bool closes_clean(int fd, bool peer_done) noexcept;

/// Blocks until the peer's kernel has everything written to a TCP socket, the peer is gone, or
/// `until`. Input is discarded meanwhile, so that a subsequent close() provokes no reset. Returns
/// true if further waiting would make no difference. With a ledger the kernel still reads the
/// user's memory: the peer's end of stream does not end the wait, and completions are read
/// meanwhile.
bool deliver(int fd, ae::TimePoint until, ZeroCopyLedger* ledger = nullptr) noexcept;

/// Delivers what a TCP socket still has to send, within `limit`, without blocking. `done` runs
/// once, from the loop, receives the socket and may destroy the Linger; destroying the Linger
/// earlier closes the socket at once. `ledger` may be null; it has the same effect as in deliver()
/// and must outlive this object.
class Linger {
 public:
  using Done = std::function<void(Fd)>;
  Linger(ae::EventLoop& loop, Fd fd, ae::Duration limit, ZeroCopyLedger* ledger, Done done);
  void start();
  /// As deliver(); for the end of the loop.
  bool drain(ae::TimePoint until) noexcept { return !fd_ || deliver(fd_.get(), until, ledger_); }
  /// Stops lingering without running `done`, and returns the socket.
  Fd give_back() noexcept;
  ~Linger();
  Linger(const Linger&) = delete;
  Linger& operator=(const Linger&) = delete;

 private:
  void readable();
  ae::Duration tick();
  void finish();

  ae::EventLoop& loop_;
  Fd fd_;
  ae::TimePoint deadline_;
  ZeroCopyLedger* ledger_;
  Done done_;
  ae::Duration delay_;
  ae::TimerId timer_ = 0;
  bool peer_sends_ = false;     // input had to be discarded
  bool peer_ended_ = false;     // no more input can arrive
  ae::TimePoint last_arrival_;  // of input that was discarded
};

}}}  // namespace conn::tcp
