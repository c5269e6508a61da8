// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A byte stream to one peer, independent of the transport. The operations have the semantics of the
// corresponding socket calls.
//
// Thread rule: use a connection only on the thread of its loop. I/O never throws. Handlers run only
// from the loop, never from within a call made by the program. They may close, replace or remove
// anything, including this connection. They are level-triggered: a handler is called again in the
// next iteration while there is unread data, end of stream or an error to collect (read), or while
// the connection accepts data (write).

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/endpoint.h"
#include "conn/error.h"
#include "conn/in_place.h"
#include "conn/state.h"

namespace conn { inline namespace AECONN_ABI {

class ConnectionType;

/// Selects the events that run a close handler.
enum class CloseOn : bool {
  kEnd,     ///< the end of the peer's stream, or a failure
  kFailure  ///< only a failure
};

/// A byte stream to one peer.
class AECONN_API Connection {
 public:
  using Handler = std::function<void(Connection&)>;  ///< gets the connection it was set on

  // --- set-up ------------------------------------------------------------------------------------
  /// Starts an outgoing connection and tries every address that `to` resolves to. `done` runs
  /// exactly once, never before connect() returns, with state() kConnected or kError; close()
  /// cancels it. The transport's connect time-out applies (option connect-timeout, 5 s). Only a new
  /// connection (kNone) can connect. On any other, connect() does nothing and `done` never runs,
  /// and connect_blocking() returns false with errno EISCONN or EALREADY. connect() throws
  /// std::bad_alloc if there is no memory to start; the connection is then in kError and `done`
  /// does not run.
  void connect(const Endpoint& to, Handler done);
  /// Blocking variant: waits at most `timeout`. Returns true if connected; otherwise see
  /// last_error().
  bool connect_blocking(const Endpoint& to, ae::Duration timeout);

  // --- data --------------------------------------------------------------------------------------
  /// As read(2): the number of bytes; 0 at end of stream, after the last byte; -1 with errno,
  /// EAGAIN if nothing is available now. size 0 returns 0 and carries no information. If a write
  /// detected that the connection failed, data received before the failure is still returned first,
  /// as far as the transport has it.
  ssize_t read(void* buffer, std::size_t size);
  /// As write(2): may be short; -1 with EAGAIN if the transport accepts nothing now. Accepted bytes
  /// are delivered in order, or the connection reports an error. The buffer can be reused on
  /// return.
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
  /// Shows the bytes that read() would return next, without copying them. size 0 with errno 0 means
  /// end of stream, EAGAIN that nothing is available now, EMSGSIZE that `together` exceeds
  /// kMaxContiguous; otherwise errno is as for read(). If fewer than `together` bytes have arrived,
  /// peek() shows those, and the read handler runs again when more are there; a read handler set in
  /// the meantime runs for the bytes already there. The view is valid until the next consume(),
  /// read() or peek() of this connection, close() or rebind(). Holding on to the view stalls the
  /// peer: its window is not returned until consume().
  View peek(std::size_t together = 1);
  /// Marks the first `size` bytes shown by peek() as read. The next peek() begins after them.
  void consume(std::size_t size) noexcept;
  /// Returns a buffer for at least `size` bytes (at most kMaxContiguous) of output. Empty with
  /// errno on failure; EAGAIN if no buffer is available now. The caller owns the buffer until
  /// commit() or close(); until then write() fails with EBUSY.
  std::span<std::byte> reserve(std::size_t size);
  /// Writes the first `size` bytes of the reserved buffer (all of it if it is smaller), as write()
  /// does; 0 returns the buffer unused. Never short. Data committed in one iteration is sent
  /// together at the end of the iteration, or by flush().
  void commit(std::size_t size) noexcept;
  /// As write(), but sends the bytes from the caller's memory. Accepts all bytes, or none with
  /// EAGAIN. The memory belongs to the library until `release` runs: exactly once, from the loop,
  /// never inside send(), with an error if the bytes were not handed on before the connection or
  /// the loop ended. It may run after close(), but never after the end of the loop.
  ssize_t send(const Outgoing& bytes);

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

  /// Half-close: the peer receives everything written, then end of stream. Reading continues.
  /// Returns 0, or -1 with errno (EOPNOTSUPP if Capabilities::half_close is false).
  int shutdown();
  /// Ends both directions, on every transport: the peer receives everything written, then end of
  /// stream. From now on read() returns end of stream, for which the read handler runs; unread and
  /// later input is discarded. write() fails with EPIPE, for which the write handler runs even
  /// while output is still pending. Returns 0, or -1 with errno ENOTCONN.
  int shutdown_both();
  /// Closes gracefully and releases ownership. No further handlers run; do not use the object
  /// afterwards (as after delete). Bytes accepted by write() are still delivered within a bounded
  /// linger time that never blocks the loop; if the loop ends during that time, option end-linger
  /// applies. Safe inside any handler, including the connection's own.
  void close() noexcept;
  /// As close(), but aborts the stream: nothing more is delivered, and the peer should see an error
  /// instead of a clean end of stream. If Capabilities::reset is true, the peer's read() fails with
  /// ECONNRESET after the data that had arrived before; see docs/transports.md for other
  /// transports. Memory passed to send() is released with an error. With a ConnectionPtr:
  /// owner.release()->abort().
  void abort() noexcept;

  // --- blocking, for handshakes and replication-style code ---------------------------------------
  // These calls run no handlers, and the loop's other connections lose no data in the meantime.
  /// Waits until read() (kReadable) or write() (kWritable) would not fail with EAGAIN, as poll(2)
  /// does. It also returns for end of stream and failures, which the read() or write() then
  /// reports. Returns false with errno ETIMEDOUT, or ENOTCONN before the connection is established.
  bool sync_wait(ae::Mask direction, ae::Duration timeout);
  /// Reads exactly `size` bytes. Returns size; fewer at end of stream; -1 with errno. ETIMEDOUT in
  /// state kConnected means that the time-out expired; bytes received so far are lost, as with
  /// Redis's syncRead.
  ssize_t sync_read(void* buffer, std::size_t size, ae::Duration timeout);
  /// Writes all bytes and then flushes as flush() does, waiting while the peer cannot receive.
  /// Returns size, or -1 with errno. Once all bytes are accepted, an expired time-out is not a
  /// failure: the loop hands on the remaining bytes.
  ssize_t sync_write(const void* buffer, std::size_t size, ae::Duration timeout);
  /// Reads a line: up to a newline, which is removed together with a preceding carriage return; the
  /// text is NUL-terminated. Returns the length without terminators; -1 with errno: EMSGSIZE if
  /// size-1 bytes contain no newline, ECONNRESET if the stream ended first.
  ssize_t sync_readline(char* buffer, std::size_t size, ae::Duration timeout);

  // --- facts -------------------------------------------------------------------------------------
  State state() const noexcept;  ///< current state
  /// The text of the first failure; empty if the connection has not failed.
  const std::string& last_error() const noexcept;
  /// The reason for the failure, including a failure that is reported only after the data received
  /// before it has been read. Empty if no failure is known.
  const Failure& why_ended() const noexcept;
  std::error_code error_code() const noexcept;  ///< code of last_error()
  /// How long a peer that refused the connection asked the client to wait; 0 if it did not.
  std::chrono::milliseconds retry_after() const noexcept;
  const ConnectionType& type() const noexcept;  ///< the transport
  /// Null after the loop was destroyed before the connection, and between leave() and join().
  ae::EventLoop* loop() const noexcept;
  /// A descriptor used by this connection alone, or -1 (rdma: descriptors belong to the loop).
  int fd() const noexcept;
  std::string local_address() const;  ///< "10.0.0.1:6379"; a path; "" if unknown
  std::string peer_address() const;   ///< as local_address(), of the peer
  Address local_host_port() const;                ///< in two parts
  Address peer_host_port() const;                 ///< in two parts
  std::optional<bool> is_local() const;  ///< peer on this host; no value: unknown
  /// One-line description of the path: "tcp 10.0.0.2:50400 > 10.0.0.1:6379", local side first;
  /// docs/paths.md lists the format of each transport. "" before the connection is established;
  /// after its end, the parts that are still known.
  std::string path() const;
  /// Transport details for logs and CLIENT INFO: window sizes, queue use, device.
  std::vector<std::pair<std::string, std::string>> info() const;
  std::string peer_certificate() const;  ///< PEM; "" if there is none
  std::string peer_user() const;         ///< by option peer-user; "" if none
  std::uint64_t id() const noexcept;     ///< unique in the process
  std::uint64_t bytes_read() const noexcept;     ///< since creation
  std::uint64_t bytes_written() const noexcept;  ///< since creation

  /// One pointer for the host program; the library does not use it.
  void* private_data() const noexcept;
  void set_private_data(void* data) noexcept;  ///< see private_data()

  /// Moves an idle or connected connection, with its handlers, to another loop. Call it on the old
  /// loop's thread. Afterwards the connection belongs to the new loop: pass it on with a post to
  /// that loop. Returns false with errno EOPNOTSUPP if Capabilities::rebind is false, EBUSY while
  /// connecting, inside one of its own handlers and between reserve() and commit(), EAGAIN while
  /// committed or sent data is pending, ENOMEM if out of memory; the connection then stays on the
  /// old loop. If the new loop has no memory to watch the connection, it fails there.
  bool rebind(ae::EventLoop& loop);
  /// rebind() in two steps, for a host that moves state of its own in between and does not know the
  /// target yet: call leave() on the old loop's thread and join() on the new loop's thread. leave()
  /// fails as rebind() does. Between the two, only join() and close() may be called; close() then
  /// acts as at the end of the loop: data still held by the transport is not delivered. join()
  /// returns false with errno ENOMEM if there is no memory to watch the connection, which has then
  /// failed.
  bool leave();
  bool join(ae::EventLoop& loop);  ///< see leave()

  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

 protected:
  Connection() = default;
  ~Connection() = default;  // close() and abort() end a connection
};

/// Deleter of ConnectionPtr.
struct ConnectionCloser {
  /// Closes it.
  void operator()(Connection* connection) const noexcept { connection->close(); }
};
/// Owns a connection and closes it on destruction.
using ConnectionPtr = std::unique_ptr<Connection, ConnectionCloser>;

}}  // namespace conn
