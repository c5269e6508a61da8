// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A byte stream to one peer, independent of the transport. The operations have the semantics of the
// corresponding socket calls.
//
// Use a connection only on the thread of its loop. I/O never throws. Handlers run only from the
// loop, never from within a call; they may close, replace or remove anything, including this
// connection. They are level-triggered: one is called again in the next iteration while there is
// unread data, end of stream or an error to collect (read), or the connection accepts data (write).

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

/// A byte stream to one peer. What can be asked of it is in conn/connection_facts.h.
class AECONN_API Connection : public ConnectionFacts {
 public:
  using Handler = std::function<void(Connection&)>;  ///< gets the connection it was set on

  // --- set-up ------------------------------------------------------------------------------------
  /// Connects a new connection (kNone), trying every address that `to` resolves to, within option
  /// connect-timeout (5 s). `done` runs exactly once, from the loop, in state kConnected or kError;
  /// close() cancels it. In other states nothing happens and `done` never runs. Throws
  /// std::bad_alloc if there is no memory to start: the state is kError then, `done` does not run.
  void connect(const Endpoint& to, Handler done);
  /// As connect(), waiting at most `timeout`. False: see last_error(), or errno EISCONN or EALREADY
  /// if the connection was not new.
  bool connect_blocking(const Endpoint& to, ae::Duration timeout);

  // --- data --------------------------------------------------------------------------------------
  /// As read(2): the number of bytes; 0 at end of stream, after the last byte; -1 with errno,
  /// EAGAIN: nothing now. size 0 returns 0. What came before a failure is returned before it.
  ssize_t read(void* buffer, std::size_t size);
  /// As write(2): may be short; -1 with EAGAIN if the transport accepts nothing now. Accepted bytes
  /// are delivered in order, or the connection reports an error. The buffer can be reused.
  ssize_t write(const void* buffer, std::size_t size);
  /// As readv(2) and writev(2), without their limits on count (IOV_MAX) and total size.
  ssize_t readv(const iovec* vectors, int count);
  ssize_t writev(const iovec* vectors, int count);  ///< gathering variant of write(), see readv()
  /// Passes the bytes accepted by write() through every layer to the kernel or the RDMA device, as
  /// far as possible without waiting, as the loop does in each iteration. Bytes that the peer
  /// cannot receive yet are left to the loop. Guarantees no delivery, reports no error (the next
  /// read() or write() does), runs no handler, and does nothing unless connected.
  void flush() noexcept;

  // --- data in place, without a copy where the transport can (conn/in_place.h) -------------------
  /// Shows the bytes that read() would return next: see View in conn/in_place.h. If fewer than
  /// `together` have arrived, the read handler runs again when more are there.
  View peek(std::size_t together = 1);
  void consume(std::size_t size) noexcept;  ///< marks the first bytes shown by peek() as read
  /// Returns a buffer for at least `size` bytes (at most kMaxContiguous) of output. Empty with
  /// errno on failure; EAGAIN if no buffer is available now. The caller owns the buffer until
  /// commit() or close(); until then write() fails with EBUSY.
  std::span<std::byte> reserve(std::size_t size);
  /// Writes the first `size` bytes of the reserved buffer (all of it if it is smaller), as write()
  /// does; 0 returns the buffer unused. Never short. Data committed in one iteration is sent
  /// together at the end of the iteration, or by flush().
  void commit(std::size_t size) noexcept;
  /// As write(), from the caller's memory, which belongs to the library until Outgoing::release.
  /// Accepts all bytes, or none with EAGAIN.
  ssize_t send(const Outgoing& bytes);

  // --- handlers ----------------------------------------------------------------------------------
  /// Null removes the handler. One that replaces itself takes effect with the next call. Throws
  /// std::bad_alloc, and sets none, if there is no memory to watch the connection for the first.
  void set_read_handler(Handler handler);
  void set_write_handler(Handler handler, Barrier barrier = Barrier::kNo);  ///< in the same way
  /// Runs once, from the loop, when the peer is known to have closed (its shutdown() counts) or an
  /// established connection has failed; no read is needed to detect this. Data received earlier can
  /// still be read. If the handler is set after the event, it runs in the next iteration. With
  /// CloseOn::kFailure only a failure runs it, including one after the peer's end of stream.
  void set_close_handler(Handler handler, CloseOn when = CloseOn::kEnd);
  /// Removes every handler, including the one of connect(), before the connection changes owner.
  void clear_handlers() noexcept;
  bool has_read_handler() const noexcept;   ///< whether a read handler is set
  bool has_write_handler() const noexcept;  ///< whether a write handler is set

  // --- the end -----------------------------------------------------------------------------------
  /// Half-close: the peer receives everything written, then end of stream. Reading continues.
  /// Returns 0, or -1 with errno (EOPNOTSUPP if Capabilities::half_close is false).
  int shutdown();
  /// Ends both directions, on every transport: the peer receives everything written, then end of
  /// stream. From now on read() returns end of stream, for which the read handler runs; unread and
  /// later input is discarded. write() fails with EPIPE, for which the write handler runs even
  /// while output is still pending. Returns 0, or -1 with errno ENOTCONN.
  int shutdown_both();
  /// Closes gracefully and releases ownership: no further handlers run; do not use the object
  /// afterwards. Bytes accepted by write() are still delivered within a bounded linger time that
  /// never blocks the loop (option end-linger if the loop ends). Safe inside any handler.
  void close() noexcept;
  /// As close(), but nothing more is delivered. With Capabilities::reset the peer's read() fails
  /// with ECONNRESET after the data that had arrived; else see docs/transports.md. Memory passed to
  /// send() is released with an error. With a ConnectionPtr: owner.release()->abort().
  void abort() noexcept;

  // --- blocking, for handshakes and replication-style code ---------------------------------------
  // They run no handlers, and the loop's other connections lose no data meanwhile.
  /// Waits until read() (kReadable) or write() (kWritable) would not fail with EAGAIN, as poll(2)
  /// does. False with errno ETIMEDOUT, or ENOTCONN before the connection is established.
  bool sync_wait(ae::Mask direction, ae::Duration timeout);
  /// Reads exactly `size` bytes. Returns size; fewer at end of stream; -1 with errno. ETIMEDOUT in
  /// state kConnected: the time-out expired, bytes received so far are lost.
  ssize_t sync_read(void* buffer, std::size_t size, ae::Duration timeout);
  /// Writes all bytes and then flushes as flush() does, waiting while the peer cannot receive.
  /// Returns size, or -1 with errno. Once all bytes are accepted, a time-out is no failure.
  ssize_t sync_write(const void* buffer, std::size_t size, ae::Duration timeout);
  /// Reads up to a newline, which is removed with a preceding carriage return; the text is
  /// NUL-terminated. Returns its length; -1 with errno: EMSGSIZE if size-1 bytes contain no
  /// newline, ECONNRESET if the stream ended first.
  ssize_t sync_readline(char* buffer, std::size_t size, ae::Duration timeout);

  // --- moving to another loop --------------------------------------------------------------------
  /// Moves an idle or connected connection, with its handlers, to another loop. On the old loop's
  /// thread; pass the connection on with a post. False with errno EOPNOTSUPP without
  /// Capabilities::rebind; EBUSY while connecting, inside one of its handlers, between reserve()
  /// and commit(); EAGAIN while committed or sent data is pending; ENOMEM.
  bool rebind(ae::EventLoop& loop);
  /// rebind() in two steps, where the target is not known yet: leave() on the old loop's thread,
  /// join() on the new one's. Between them only join() and close() may be called; close() then acts
  /// as at the end of the loop. join() is false with errno ENOMEM if the connection failed there.
  bool leave();
  bool join(ae::EventLoop& loop);  ///< see leave()

  void* private_data() const noexcept;         ///< one pointer for the program
  void set_private_data(void* data) noexcept;  ///< see private_data()

 protected:
  Connection() = default;
  ~Connection() = default;  // ended by close() and abort()
};

struct ConnectionCloser {  ///< deleter of ConnectionPtr
  void operator()(Connection* connection) const noexcept { connection->close(); }  ///< closes it
};
using ConnectionPtr = std::unique_ptr<Connection, ConnectionCloser>;  ///< closes what it owns

}}  // namespace conn
