// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What happens to a socket after close(). Closing one that has unread bytes, or is sent more, makes
// the kernel answer with a reset, and the peer's end of stream becomes an error (on some systems
// it even loses what it had not read yet). So the write side is closed first, and what still
// arrives is read and thrown away until the peer has everything.

#include <functional>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/tcp/socket.h"
#include "conn/tcp/zero_copy.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

/// True if a plain close() loses nothing: nothing is unread, and all is acknowledged or, where the
/// peer has said that it sends no more, the kernel can deliver the rest without being provoked to
/// a reset.
bool closes_clean(int fd, bool peer_done) noexcept;

/// The close() that comes next drops what is unsent and resets the connection.
void reset_when_closed(int fd) noexcept;

/// Empties a Unix socket so that its peer sees end of stream. All that was written is with the peer
/// already: a Unix socket never lingers.
void close_unix(Fd fd) noexcept;

/// Waits until the peer's kernel has all that was written to a TCP socket, or is gone, or `until`.
/// What arrives meanwhile is thrown away, so that a close() after it provokes no reset. True if no
/// waiting would make a difference any more. With a ledger the kernel still reads memory of the
/// user's, so that its peer's end of stream is not enough; its completions are read meanwhile.
bool deliver(int fd, ae::TimePoint until, ZeroCopyLedger* ledger = nullptr) noexcept;

/// Delivers what a TCP socket still has to send, within `limit`, without blocking. `done` runs once
/// from the loop, gets the socket back and may destroy the Linger; destroying it earlier closes the
/// socket at once. The ledger, if there is one, as for deliver(); it must outlive this.
class Linger {
 public:
  using Done = std::function<void(Fd)>;
  Linger(ae::EventLoop& loop, Fd fd, ae::Duration limit, ZeroCopyLedger* ledger, Done done);
  void start();
  /// The loop is about to go: as deliver().
  bool drain(ae::TimePoint until) noexcept { return !fd_ || deliver(fd_.get(), until, ledger_); }
  /// Ends it, without `done`.
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
  bool peer_sends_ = false;     // something had to be thrown away
  bool peer_ended_ = false;     // there will be no more of it
  ae::TimePoint last_arrival_;  // of such bytes
};

}}}  // namespace conn::tcp
