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
#include "ae/core/fork.h"
#include "ae/core/handler_slot.h"
#include "ae/event_loop.h"
#include "conn/core/vain.h"
#include "conn/endpoint.h"
#include "conn/error.h"
#include "conn/in_place.h"
#include "conn/kit/quota.h"
#include "conn/state.h"

namespace conn { inline namespace AECONN_ABI {

class CloseWatch;
class ConnectionSet;
class ConnectionType;
class InPlace;
struct LoopCounters;

/// Selects the events that run a close handler.
enum class CloseOn : bool {
  kEnd,     ///< the end of the peer's stream, or a failure
  kFailure  ///< only a failure
};

/// A byte stream to one peer.
class AECONN_API Connection : public ae::Deferred {
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
  bool has_read_handler() const noexcept { return static_cast<bool>(on_read_); }  ///< one is set
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
  State state() const noexcept { return state_; }  ///< current state
  /// The text of the first failure; empty if the connection has not failed.
  const std::string& last_error() const noexcept { return failure_.text; }
  /// The reason for the failure, including a failure that is reported only after the data received
  /// before it has been read. Empty if no failure is known.
  virtual const Failure& why_ended() const noexcept { return failure_; }
  std::error_code error_code() const noexcept { return failure_.code; }  ///< code of last_error()
  /// How long a peer that refused the connection asked the client to wait; 0 if it did not.
  std::chrono::milliseconds retry_after() const noexcept { return failure_.retry_after; }
  const ConnectionType& type() const noexcept { return type_; }  ///< the transport
  /// Null after the loop was destroyed before the connection, and between leave() and join().
  ae::EventLoop* loop() const noexcept { return loop_; }
  /// A descriptor used by this connection alone, or -1 (rdma: descriptors belong to the loop).
  virtual int fd() const noexcept { return -1; }
  virtual std::string local_address() const = 0;  ///< "10.0.0.1:6379"; a path; "" if unknown
  virtual std::string peer_address() const = 0;   ///< as local_address(), of the peer
  Address local_host_port() const { return split_address(local_address()); }  ///< in two parts
  Address peer_host_port() const { return split_address(peer_address()); }    ///< in two parts
  virtual std::optional<bool> is_local() const = 0;  ///< peer on this host; no value: unknown
  /// One-line description of the path: "tcp 10.0.0.2:50400 > 10.0.0.1:6379", local side first;
  /// docs/paths.md lists the format of each transport. "" before the connection is established;
  /// after its end, the parts that are still known.
  std::string path() const;
  /// Transport details for logs and CLIENT INFO: window sizes, queue use, device.
  virtual std::vector<std::pair<std::string, std::string>> info() const { return {}; }
  virtual std::string peer_certificate() const { return {}; }  ///< PEM; "" if there is none
  virtual std::string peer_user() const { return {}; }         ///< by option peer-user; "" if none
  std::uint64_t id() const noexcept { return id_; }            ///< unique in the process
  std::uint64_t bytes_read() const noexcept { return bytes_read_; }        ///< since creation
  std::uint64_t bytes_written() const noexcept { return bytes_written_; }  ///< since creation

  /// One pointer for the host program; the library does not use it.
  void* private_data() const noexcept { return private_data_; }
  void set_private_data(void* data) noexcept { private_data_ = data; }  ///< see private_data()

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

  ~Connection() override;

 protected:
  /// Creates it in state kNone and adds it to the loop's ConnectionSet. Throws std::bad_alloc.
  /// `type` must outlive it.
  Connection(const ConnectionType& type, ae::EventLoop& loop);

  // --- what a transport implements ---------------------------------------------------------------
  // Each function implements the public operation of the same name; the base has checked the state
  // and the arguments.
  /// As connect(). Completes later, from the loop, with move_to(kConnected) or fail(), followed by
  /// dispatch_connect().
  virtual void do_connect(const Endpoint& to) = 0;
  /// As connect_blocking(): returns in state kConnected or kError. Runs no handler.
  virtual void do_connect_blocking(const Endpoint& to, ae::TimePoint deadline) = 0;
  virtual ssize_t do_read(void* buffer, std::size_t size) = 0;     ///< as read()
  virtual ssize_t do_writev(const iovec* vectors, int count) = 0;  ///< as writev()
  /// As readv(). The default calls do_read() for each vector.
  virtual ssize_t do_readv(const iovec* vectors, int count);
  // In-place I/O, for transports that expose their own memory. For the others, the base copies
  // through chunks, which it borrows from the pool while they hold data.
  /// Whether do_peek() and do_consume() are implemented: unread bytes are shown where they arrived.
  virtual bool peeks_in_place() const noexcept { return false; }
  /// As peek(): 1; 0 at end of stream; -1 with errno. EMSGSIZE: `together` bytes have arrived, but
  /// not in one piece.
  virtual ssize_t do_peek(std::size_t /*together*/, View& /*view*/) { return 0; }
  /// Cancels the minimum of do_peek(): the next read handler may run for fewer bytes.
  virtual void do_peek_anything() noexcept {}
  /// Returns the number of bytes consumed, at most what do_peek() showed.
  virtual std::size_t do_consume(std::size_t /*size*/) noexcept { return 0; }
  /// Whether do_reserve() and do_commit() are implemented, with the semantics of reserve() and
  /// commit(). do_reserve() may return empty with EOPNOTSUPP: the base then lends a chunk this
  /// time.
  virtual bool reserves_in_place() const noexcept { return false; }
  /// As reserve(); see reserves_in_place().
  virtual std::span<std::byte> do_reserve(std::size_t /*size*/) { return {}; }
  virtual void do_commit(std::size_t /*size*/) noexcept {}  ///< as commit()
  /// Whether do_send() may accept these bytes. False if it is certain to refuse them; they are then
  /// written together with the data before and after them.
  virtual bool sends_in_place(const Outgoing& /*bytes*/) const noexcept { return true; }
  /// Takes all bytes, and calls references_done() when they are no longer needed; or takes fewer,
  /// and the rest comes with the next call, before anything else; or returns -1: EAGAIN, not now
  /// (handlers are called when a retry is worthwhile, as for do_writev()); EOPNOTSUPP, the base
  /// must write all of them with do_writev(). If the rest never comes because the connection ends,
  /// the segment ends there.
  virtual ssize_t do_send(const Outgoing& bytes);
  /// Called after a handler was set or removed (on_read_, on_write_, barrier_, close_wanted()).
  virtual void handlers_changed() = 0;
  /// Calls handlers_changed() for callers that cannot repeat the call. If it runs out of memory,
  /// the connection fails, and a second call lets waiting handlers learn of the failure. If that
  /// fails as well, the next operation reports the failure.
  void watch_or_fail() noexcept;
  /// As path(), for a connection that is or was established. The default: type and both addresses.
  virtual std::string do_path() const;
  /// As shutdown(): 0, or -1 with errno, EOPNOTSUPP without Capabilities::half_close.
  virtual int do_shutdown() = 0;
  /// As shutdown_both(), after the base has discarded its read-ahead data. The default calls
  /// do_shutdown(); the base refuses reads afterwards.
  virtual int do_shutdown_both();
  /// Hands the bytes accepted by write() to the layer below or the device, waiting until `until` at
  /// the latest; it does not wait if `until` has passed. True if no bytes are left here. Runs no
  /// handler.
  virtual bool do_flush(ae::TimePoint /*until*/) noexcept { return true; }
  /// Called before do_abandon() when the loop is about to end: bytes accepted by write() may still
  /// leave, until `until` at the latest, also after close(). Returns true if further waiting would
  /// make no difference. Called repeatedly, often with a time that has passed, as the connections
  /// take turns. Runs no handler.
  virtual bool do_drain(ae::TimePoint /*until*/) noexcept { return true; }
  /// How long close() may continue to deliver (option linger).
  virtual ae::Duration linger() const noexcept { return std::chrono::seconds(3); }
  /// Total time for all calls of do_drain() (option end-linger); zero: do_drain() is not called.
  virtual ae::Duration end_linger() const noexcept { return ae::Duration::zero(); }
  /// Begins to close; handlers are already cleared. Leads to release(), immediately or later. If
  /// aborts() is true, nothing more is delivered, and the peer should see an error if the transport
  /// can signal one.
  virtual void do_close() noexcept = 0;
  /// Waits until read (or write) would not fail with EAGAIN, or until the deadline. Runs no
  /// handler. Returns false if the deadline came first.
  virtual bool wait_for(ae::Mask direction, ae::TimePoint deadline) = 0;
  /// The layer above knows that the peer sends nothing more: do_close() need not wait for the peer.
  virtual void do_expect_no_more() noexcept {}
  /// The loop is being destroyed: frees everything that depends on it, without waiting. Not called
  /// after release().
  virtual void do_abandon() noexcept = 0;
  /// Moves to another loop, or, if `loop` is null, to no loop until join(). May throw
  /// std::bad_alloc, without side effects.
  virtual bool do_rebind(ae::EventLoop* loop);
  /// Called on the new loop; a layer also joins the connection below. False if the connection
  /// failed.
  virtual bool do_join(ae::EventLoop& /*loop*/) { return true; }
  // For layers: access to the protected operations of the connection below.
  /// wait_for() of the connection below.
  static bool wait_for(Connection& below, ae::Mask direction, ae::TimePoint deadline) {
    return below.wait_for(direction, deadline);
  }
  /// rebind() of the connection below; leave() if `to` is null.
  static bool rebind(Connection& below, ae::EventLoop* to) { return below.move(to); }
  /// do_flush() of the connection below.
  static bool flush(Connection& below, ae::TimePoint until) noexcept {
    return below.do_flush(until);
  }
  /// do_path() of the connection below.
  static std::string path(const Connection& below) { return below.do_path(); }
  /// do_expect_no_more() of the connection below.
  static void expect_no_more(Connection& below) noexcept { below.do_expect_no_more(); }
  /// peeks_in_place() of the connection below.
  static bool peeks_in_place(const Connection& below) noexcept { return below.peeks_in_place(); }
  /// reserves_in_place() of the connection below.
  static bool reserves_in_place(const Connection& below) noexcept {
    return below.reserves_in_place();
  }
  /// linger() of the connection below.
  static ae::Duration linger(const Connection& below) noexcept { return below.linger(); }
  /// end_linger() of the connection below.
  static ae::Duration end_linger(const Connection& below) noexcept { return below.end_linger(); }
  /// Reports that the oldest `count` of the segments taken by do_send() are no longer needed. May
  /// be called from anywhere, also after do_close(). The base releases them from the loop. It
  /// releases all others when the connection is destroyed or abandoned, when the transport can no
  /// longer read them.
  void references_done(std::size_t count, std::error_code error = {}) noexcept;

  // --- what the base gives a transport -----------------------------------------------------------
  /// Whether the connection still exists after a handler has run.
  enum class [[nodiscard]] Alive : bool{
      kGone,  ///< it was closed
      kYes,   ///< it is still open
  };
  /// Runs a handler. On kGone the connection is closed: return without accessing it.
  Alive dispatch(ae::HandlerSlot<void(Connection&)>& slot) {
    Running running{running_};
    const std::uint64_t before = &slot == &on_read_ ? bytes_read_ : bytes_written_;
    vain_.begin();
    slot.run(*this);
    if (vain_.worth_a_look()) [[unlikely]]
      look_at_run(&slot == &on_read_, before);
    return closing_ ? Alive::kGone : Alive::kYes;
  }
  /// Runs the connect handler, at most once.
  Alive dispatch_connect();
  /// To be called when the transport can accept data: output pending in the base is sent first.
  Alive dispatch_write();
  /// Whether write readiness is of interest to a handler or the base; check this, not on_write_.
  bool write_wanted() const noexcept { return (on_write_ && !output_full_) || output_blocked_; }
  /// Whether a close handler waits for peer_gone(): then watch for the end of the stream without
  /// reads.
  bool close_wanted() const noexcept { return close_watch_ != nullptr && !close_due(); }
  /// Reports that the peer sends nothing more, whether or not everything has been read. Runs no
  /// handler. The base itself detects failures, and the end of stream when a read returns it.
  void peer_gone() noexcept;
  /// The only way to change the state, in the order of conn/state.h. Runs no handler.
  void move_to(State next);
  /// Moves to kError for this reason; the first failure is kept. Runs no handler, but makes them
  /// due.
  void fail(Failure failure);
  /// Call after fail() if an established connection still has data received before the failure:
  /// do_read() is then called until it returns no_more_unread().
  void keep_unread() noexcept { keeps_unread_ = died_; }
  ssize_t no_more_unread() const noexcept;  ///< -1 with the failure's errno
  /// Whether keep_unread() applies to the connection below.
  static bool keeps_unread(const Connection& below) noexcept { return below.keeps_unread_; }
  /// Holds a place in the quota of the listener that accepted the connection, or of the address it
  /// connects to, until the connection is destroyed.
  void occupy(Quota::Place place) noexcept { place_ = std::move(place); }
  /// Frees the connection once no handler is on the stack. The last step of do_close().
  void release() noexcept;

  /// Whether this process is a child of fork() and the connection was created in its parent.
  bool inherited() const noexcept;
  bool closing() const noexcept { return closing_; }  ///< do_close() was called
  bool aborts() const noexcept { return aborts_; }    ///< abort() was called
  /// Whether an established connection has failed and no read() has reported it yet: the read
  /// handler is due.
  bool error_unread() const noexcept { return died_ && !read_told_; }
  /// As error_unread(), for write() and the write handler.
  bool error_unwritten() const noexcept { return died_ && !write_told_; }
  struct RebindState;
  /// Implements do_rebind() in two steps. The constructor allocates and may throw, without side
  /// effects. After leave() the connection is no longer on the old loop, so the transport must
  /// remove its events from that loop before. The connection reaches the new loop by a post or by
  /// join(), which calls handlers_changed(). Destroying the Move without leave() undoes it.
  class Move {
   public:
    /// `to`: the target loop, or null if join() provides it. Throws std::bad_alloc.
    Move(Connection& connection, ae::EventLoop* to);
    ~Move();
    Move(const Move&) = delete;
    Move& operator=(const Move&) = delete;
    void leave() noexcept;  ///< removes the connection from the old loop

   private:
    Connection& connection_;
    ae::EventLoop* to_;  // null: join() provides the loop
    std::shared_ptr<RebindState> rebind_state_;
  };

  using Slot = ae::HandlerSlot<void(Connection&)>;  ///< handler storage for dispatch()
  Slot on_connect_;                                 ///< set by connect(), until it has run
  Slot on_read_;                                    ///< set by set_read_handler()
  Slot on_write_;                   ///< set by set_write_handler(); see write_wanted()
  Barrier barrier_ = Barrier::kNo;  ///< set by set_write_handler()

 private:
  friend class CloseWatch;
  friend class ConnectionSet;
  friend class InPlace;
  struct Running {  // counts this connection's handlers on the stack
    explicit Running(std::uint8_t& count) : depth(count) { ++depth; }
    ~Running() { --depth; }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    std::uint8_t& depth;
  };
  void give_up() noexcept;
  bool move(ae::EventLoop* to);
  void tell_transport(Slot& changed);
  bool gone() const noexcept { return peer_gone_ || died_ || state_ == State::kClosed; }
  bool close_due() const noexcept;
  void queue_close() noexcept;
  void abandon() noexcept;
  void leave_set() noexcept;
  void leave_to_parent() noexcept;
  void arrive(ae::EventLoop& loop) noexcept;
  ssize_t refuse(ae::Mask direction) noexcept;
  ssize_t finish_write(ssize_t n, std::size_t asked) noexcept;
  void finish_read(ssize_t n) noexcept;
  void count_read(std::size_t size) noexcept;
  void count_written(std::size_t size) noexcept;
  bool may_send() noexcept;
  void look_at_run(bool reads, std::uint64_t before) noexcept;
  void refused_write() noexcept;
  InPlace* borrow() noexcept;
  bool drain(ae::TimePoint until) noexcept;
  bool events_wanted() const noexcept {
    return !closing_ && !abandoned_ && loop_ != nullptr && !rebind_state_;
  }

  const ConnectionType& type_;
  ae::EventLoop* loop_;
  ConnectionSet* set_;                       // null between loops and after the end of the loop
  LoopCounters* counters_;                   // as set_
  InPlace* in_place_ = nullptr;              // while read-ahead data or in-place output is pending
  std::unique_ptr<CloseWatch> close_watch_;  // while there is a close handler
  State state_ = State::kNone;
  std::uint8_t running_ = 0;     // handlers on the stack
  bool given_up_ = false;        // close() or abort() was called
  bool aborts_ = false;          // abort() was called
  bool closing_ = false;         // do_close() was called: no in-place output is pending any more
  bool output_blocked_ = false;  // in-place output waits until the transport accepts more
  bool output_full_ = false;     // send() and reserve() refuse more, whatever the transport accepts
  Vain vain_;
  bool reads_fill_ = false;  // the last peek() filled its chunk
  bool released_ = false;    // owned by the loop's deferred list
  bool abandoned_ = false;   // the loop has ended, or is about to
  bool died_ = false;        // failed while connected
  bool peer_gone_ = false;   // the peer's end of stream is known; it may still be unread
  bool read_told_ = false;   // a read() has returned the failure; write_told_: a write() has
  bool write_told_ = false;
  bool keeps_unread_ = false;  // failed, but do_read() still returns data received before
  Failure failure_;
  ae::TimePoint began_{};  // when connecting or accepting began
  const ae::MadeHere made_here_;
  std::uint64_t id_;
  std::uint64_t bytes_read_ = 0, bytes_written_ = 0;
  std::size_t reserved_ = 0;  // size of the buffer given by reserve(), until commit()
  void* private_data_ = nullptr;
  Quota::Place place_;
  Connection* set_next_ = nullptr;  // links in the loop's ConnectionSet
  Connection** set_link_ = nullptr;
  std::shared_ptr<RebindState> rebind_state_;  // set while a rebind is under way
};

/// Deleter of ConnectionPtr.
struct ConnectionCloser {
  /// Closes it.
  void operator()(Connection* connection) const noexcept { connection->close(); }
};
/// Owns a connection and closes it on destruction.
using ConnectionPtr = std::unique_ptr<Connection, ConnectionCloser>;

}}  // namespace conn
