// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a few connections over sockets need besides reading and writing, allocated on demand: the
// report of the peer's end while nothing is read, for a close handler; memory of the program that
// send() lends to the kernel (zero-copy sending); and the delivery of output after close().

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <span>

#include "ae/abi.h"
#include "conn/tcp/connected_socket.h"
#include "conn/tcp/linger.h"
#include "conn/tcp/socket_events.h"
#include "conn/tcp/zero_copy_sender.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

class SocketCarrier;

/// The parts of a connection that only a few connections need. Zero-copy sending lends memory to
/// the kernel, which reads it until it reports a completion, or until the socket is reset. So a
/// socket that is closed earlier must be reset: the kernel would otherwise continue to read the
/// memory.
class SocketAside final : public SocketEvents::Item {
 public:
  /// `socket` is that of `carrier`; both must outlive this object.
  SocketAside(SocketCarrier& carrier, ConnectedSocket& socket) noexcept
      : carrier_(carrier), socket_(socket), sender_(socket.zero_copy_given_up) {}

  /// Requests those events that are needed now: the peer's end, if a close handler waits for it,
  /// and errors during zero-copy sending. Cancels what is no longer needed. Throws std::bad_alloc.
  void watch();

  // --- zero-copy sending -------------------------------------------------------------------------
  /// Begins zero-copy sending, unless it has begun. Returns false if zero-copy sending is
  /// impossible or was given up; the bytes must then be copied.
  bool begin() noexcept;
  /// Whether send() has to continue a piece of memory that it has sent in part.
  bool goes_on() const noexcept { return sender_.goes_on(); }
  /// Sends bytes without a copy, if possible. To be called only after begin() has returned true, or
  /// if goes_on(). Returns what send(2) returns.
  ssize_t send(std::span<const std::byte> bytes) noexcept;
  /// Reads the kernel's zero-copy completions, and reports to the host (the connection) the memory
  /// that the kernel has returned. Returns true if there were any completions.
  bool take_completions() noexcept;
  /// Reports to the host (the connection) the memory that the kernel does not read any more. Must
  /// also be called when the connection fails: the rest of a piece that was sent in part is then
  /// never sent.
  void tell_done() noexcept;
  /// Whether the socket is really readable (POLLIN) or writable (POLLOUT), as its event says. A
  /// socket with zero-copy sending wakes the loop also for completions, as if it were both.
  bool is_ready(short event) noexcept;
  /// Returns whether the kernel may still read memory that was lent to it.
  bool is_lent() noexcept;
  /// Whether this process itself lent the memory that the kernel still reads; false in a child of
  /// fork(), if the parent lent it.
  bool is_ours() const noexcept { return sender_.is_ours(); }

  // --- after Carrier::close() --------------------------------------------------------------------
  /// Begins to deliver, within `limit`, the output that is left after close(), see Linger. Throws
  /// std::bad_alloc; end_linger() must then be called.
  void linger(ae::Duration limit, Linger::Done done);
  /// Stops the delivery that linger() has begun; no effect otherwise. To be called before the
  /// socket is closed.
  void end_linger() noexcept { linger_.reset(); }
  /// Whether linger() was called, and end_linger() was not.
  bool lingers() const noexcept { return linger_ != nullptr; }
  /// Blocks until the unsent output is delivered, at most until `until`; called when the loop ends.
  /// Returns true if waiting longer would change nothing.
  bool drain(ae::TimePoint until) noexcept {
    return linger_ ? linger_->drain(until) : deliver(socket_.fd(), until, lent_memory());
  }

 private:
  void on_socket_event(bool peer_gone, bool error) noexcept override;
  ZeroCopyLedger* lent_memory() noexcept { return sender_.is_lent() ? sender_.ledger() : nullptr; }

  SocketCarrier& carrier_;
  ConnectedSocket& socket_;
  ZeroCopySender sender_;
  std::unique_ptr<Linger> linger_;  // refers to sender_; null: linger() was not called
};

}}}  // namespace conn::tcp
