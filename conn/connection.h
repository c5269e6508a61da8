// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Connection: a byte stream to one peer, independent of the transport. Its operations have the
// semantics of the corresponding socket calls.
//
// Use a connection only on the thread of its loop. I/O never throws. Handlers run only from the
// loop, never from within a call; they may close, replace or remove anything, including this
// connection. Handlers are level-triggered: the read handler is called again in the next iteration
// while there is unread data, end of stream or an error to collect; the write handler, while the
// connection accepts data.

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/connection_facts.h"
#include "conn/endpoint.h"
#include "conn/in_place.h"
#include "conn/state.h"

namespace conn { inline namespace AECONN_ABI {

/// A byte stream to one peer. Its state, addresses and counters are in conn/connection_facts.h.
class AECONN_API Connection : public ConnectionFacts {
 public:
  /// A function called when an event occurs. Its argument is the connection that it was set on.
  using Handler = std::function<void(Connection&)>;

  // --- connecting --------------------------------------------------------------------------------
  /// Connects a connection that is in state kNone: tries every address that `to` resolves to,
  /// within option connect-timeout (5 s). `done` runs exactly once, from the loop, in state
  /// kConnected or kError; close() cancels it. In other states nothing happens and `done` never
  /// runs. Throws std::bad_alloc if there is no memory to start; the state is kError then, and
  /// `done` does not run.
  void connect(const Endpoint& to, Handler done);
  /// Connects like connect(), but blocks until the attempt has ended, at most for `timeout`.
  /// Returns whether the attempt succeeded; if not, errno and last_error() say why. Outside state
  /// kNone it does nothing and returns false with EISCONN (connected) or EALREADY (connecting).
  /// Throws like connect().
  bool connect_blocking(const Endpoint& to, ae::Duration timeout);

  // --- reading and writing -----------------------------------------------------------------------
  /// Reads like read(2). Returns the number of bytes; 0 at end of stream, after the last byte; or
  /// -1 with errno (EAGAIN: no data now). If `size` is 0, returns 0. Data that arrived before a
  /// failure is returned before the failure.
  ssize_t read(void* buffer, std::size_t size);
  /// Writes like write(2). May accept fewer bytes than given; returns -1 with EAGAIN if the
  /// transport accepts nothing now. Accepted bytes are delivered in order, or the connection
  /// reports an error. The buffer may be reused after the call.
  ssize_t write(const void* buffer, std::size_t size);
  /// Reads like readv(2), but without its limits on `count` (IOV_MAX) and on the total size.
  ssize_t readv(const iovec* vectors, int count);
  /// Writes like writev(2), but without its limits on `count` (IOV_MAX) and on the total size.
  ssize_t writev(const iovec* vectors, int count);
  /// Passes the bytes accepted by write() through every layer to the kernel or the RDMA device, as
  /// far as possible without waiting; the loop does the same in each iteration. Bytes that the peer
  /// cannot receive yet are left to the loop. flush() guarantees no delivery, reports no error (the
  /// next read() or write() does), runs no handler, and does nothing unless connected.
  void flush() noexcept;

  // --- reading and writing without a copy where the transport can (conn/in_place.h) --------------
  /// Returns a View (conn/in_place.h) of the bytes that read() would return next, without copying
  /// them if the transport can. If fewer than `together` bytes have arrived, the read handler runs
  /// again when more arrive.
  View peek(std::size_t together = 1);
  void consume(std::size_t size) noexcept;  ///< discards the first `size` bytes that peek() showed
  /// Returns a buffer for at least `size` bytes of output (at most kMaxContiguous). Returns an
  /// empty span with errno on failure; EAGAIN if no buffer is available now, EPIPE after
  /// shutdown(). Until commit() or close() the caller may fill it, and write() fails with EBUSY.
  std::span<std::byte> reserve(std::size_t size);
  /// Writes the first `size` bytes of the buffer that reserve() returned, at most all of it. Unlike
  /// write(), it accepts all of them. 0 returns the buffer unused. Data committed in one iteration
  /// is sent together at the end of the iteration, or by flush().
  void commit(std::size_t size) noexcept;
  /// Writes like write(), but directly from the caller's memory, which belongs to the library until
  /// Outgoing::release is called. Accepts all bytes, or none and returns -1 with EAGAIN or EPIPE.
  ssize_t send(const Outgoing& bytes);

  // --- handlers ----------------------------------------------------------------------------------
  /// Sets the handler that runs while there is something to read; null removes it. If the handler
  /// replaces itself, the new one runs from the next call on. Throws std::bad_alloc, with no
  /// handler set, if there is no memory to watch the connection.
  void set_read_handler(Handler handler);
  /// Sets the handler that runs while the connection accepts data; null removes it. Throws like
  /// set_read_handler(). `barrier`: whether it runs before the read handler if both are due.
  void set_write_handler(Handler handler, Barrier barrier = Barrier::kNo);
  /// Sets a handler that runs once, from the loop, when the peer is known to have closed (including
  /// its shutdown()) or when an established connection has failed; no read is needed to detect
  /// this. Data received earlier can still be read. If the handler is set after the event, it runs
  /// in the next iteration. With CloseOn::kFailure it runs only after a failure, including a
  /// failure that follows the peer's end of stream.
  void set_close_handler(Handler handler, CloseOn when = CloseOn::kEnd);
  /// Sets a handler that runs, from the loop, after the network path to the peer was lost and after
  /// another was found; see "path-state" in info(). Only rdma with resume=yes survives a lost path.
  void set_path_handler(Handler handler);
  void clear_handlers() noexcept;           ///< removes every handler, also that of connect()
  bool has_read_handler() const noexcept;   ///< returns whether a read handler is set
  bool has_write_handler() const noexcept;  ///< returns whether a write handler is set

  // --- closing -----------------------------------------------------------------------------------
  /// Half-closes the connection: the peer receives everything written, then end of stream. Reading
  /// continues. Returns 0, or -1 with errno (EOPNOTSUPP: transport or peer cannot do it).
  int shutdown();
  /// Ends both directions, on every transport: the peer receives everything written, then end of
  /// stream. From now on read() returns end of stream (the read handler runs for it); unread and
  /// later input is discarded. write() fails with EPIPE (the write handler runs for it, even while
  /// output is still pending). Returns 0, or -1 with errno ENOTCONN.
  int shutdown_both();
  /// Closes gracefully and releases ownership: no further handlers run; do not use the object
  /// afterwards. The loop still delivers bytes that write() has accepted, without blocking, for at
  /// most the time of option linger (end-linger if the loop ends). Safe inside any handler.
  void close() noexcept;
  /// Closes like close(), but delivers nothing more. With Capabilities::reset the peer's read()
  /// fails with ECONNRESET after the data that had already arrived; for other transports see
  /// docs/transports.md. Memory passed to send() is released with an error. With a ConnectionPtr,
  /// call owner.release()->abort().
  void abort() noexcept;

  // --- blocking calls, for handshakes and code such as Redis's replication -----------------------
  // The sync_ functions block the thread and run no handlers; other connections lose no data.

  /// Returns true once read() (kReadable) or write() (kWritable) would not fail with EAGAIN.
  /// Returns false with errno ETIMEDOUT after `timeout`, or ENOTCONN if not established yet.
  bool sync_wait(ae::Mask direction, ae::Duration timeout);
  /// Reads exactly `size` bytes, waiting for at most `timeout`. Returns size; fewer at end of
  /// stream; -1 with errno. If errno is ETIMEDOUT and the state is kConnected, the time-out
  /// expired, and bytes received so far are lost.
  ssize_t sync_read(void* buffer, std::size_t size, ae::Duration timeout);
  /// Writes all bytes and then flushes like flush(), for at most `timeout`. Returns size, or -1
  /// with errno; a time-out after all bytes were accepted is no failure. Without bytes (null, 0) it
  /// flushes only, also what commit() and send() accepted: then a time-out fails with ETIMEDOUT.
  ssize_t sync_write(const void* buffer, std::size_t size, ae::Duration timeout);
  /// Reads a line of text within `timeout`; removes the newline and a carriage return before it,
  /// and NUL-terminates the text. Returns the length of the text; -1 with errno: EMSGSIZE if size-1
  /// bytes contain no newline, ECONNRESET if the stream ended first.
  ssize_t sync_readline(char* buffer, std::size_t size, ae::Duration timeout);

  // --- moving to another loop --------------------------------------------------------------------
  /// Moves an idle or connected connection, with its handlers, to another loop. Call it on the old
  /// loop's thread; pass the connection to the new loop with post(). Returns false with errno
  /// EOPNOTSUPP without Capabilities::rebind; EBUSY while connecting, in one of its handlers, after
  /// reserve(); EAGAIN while committed or sent data is pending, in its Outgoing::release; ENOMEM.
  bool rebind(ae::EventLoop& loop);
  /// Moves the connection like rebind(), in two steps, if the new loop is not known yet: leave() on
  /// the old loop's thread, join() on the new one's. Between them only join() and close() may be
  /// called; close() then destroys the connection at once. join() returns false with errno ENOMEM
  /// if the connection has failed in that step.
  bool leave();
  bool join(ae::EventLoop& loop);       ///< completes the move to a new loop that leave() began
  void* private_data() const noexcept;  ///< the pointer that set_private_data() stored, or null
  void set_private_data(void* data) noexcept;  ///< stores a pointer for the program's own use
 protected:
  Connection() = default;
  ~Connection() = default;  // protected: a program ends a connection with close() or abort()
};

/// The deleter of ConnectionPtr.
struct ConnectionCloser {
  void operator()(Connection* it) const noexcept { it->close(); }  ///< closes `*it` gracefully
};
/// An owning pointer to a connection, which it closes gracefully when it is destroyed.
using ConnectionPtr = std::unique_ptr<Connection, ConnectionCloser>;

}}  // namespace conn
