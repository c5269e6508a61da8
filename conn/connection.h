// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One byte stream to one peer, whatever carries it. Its operations mean what the socket calls mean.
//
// Thread rule: everything on the thread of its loop. I/O never throws.
// Handlers run from the loop only, never from inside a call of yours, and they may close, replace
// or remove anything, this connection included. They are level-triggered: called again in the next
// iteration while there is unread data (or end of stream, or an error to collect), or room to
// write.

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

/// What runs a close handler.
enum class CloseOn : bool {
  kEnd,     ///< the end of the peer's stream, or a failure
  kFailure  ///< a failure
};

/// A byte stream to one peer.
class AECONN_API Connection : public ae::Deferred {
 public:
  using Handler = std::function<void(Connection&)>;  ///< gets the connection it was set on

  // --- set-up ------------------------------------------------------------------------------------
  /// Starts an outgoing connection, trying every address `to` resolves to. `done` runs exactly
  /// once, never before connect() returns, with state() kConnected or kError; close() cancels it.
  /// Bounded by the transport's connect time-out (option connect-timeout, 5 s).
  /// Only a fresh connection (kNone) can connect. On any other this call does nothing and `done`
  /// never runs; connect_blocking() returns false with errno EISCONN or EALREADY.
  /// connect() throws std::bad_alloc where there is no memory to begin with: the connection is in
  /// kError then, and `done` does not run.
  void connect(const Endpoint& to, Handler done);
  /// The same, waiting here for `timeout` at most. True if connected; else last_error() tells.
  bool connect_blocking(const Endpoint& to, ae::Duration timeout);

  // --- data --------------------------------------------------------------------------------------
  /// As read(2): bytes; 0 at end of stream, after the last byte; -1 with errno, EAGAIN: nothing
  /// now. size 0 returns 0 and tells nothing. Where a write found that the connection has failed,
  /// what the peer had sent before that still comes first, as far as the transport has it.
  ssize_t read(void* buffer, std::size_t size);
  /// As write(2): may be short, -1 with EAGAIN when nothing fits. What it took will be delivered in
  /// order, or the connection reports an error. The buffer is free again on return.
  ssize_t write(const void* buffer, std::size_t size);
  /// As readv(2) and writev(2), without their limits on count (IOV_MAX) and size.
  ssize_t readv(const iovec* vectors, int count);
  ssize_t writev(const iovec* vectors, int count);  ///< as readv(), of write()
  /// Hands what write() took to whatever carries it, as far as that takes it without waiting: the
  /// kernel, the RDMA device, through every layer. The loop does the same in each iteration, so
  /// this is for a host that will not be back there soon. What the peer has no room for yet stays
  /// for the loop. It promises no arrival, reports nothing (the next read() or write() tells of a
  /// failure) and runs no handler; on a connection that is not connected it does nothing.
  void flush() noexcept;

  // --- data in place, without a copy where the transport can (conn/in_place.h) -------------------
  /// What read() would give next, where it lies. size 0 with errno 0 at end of stream, EAGAIN:
  /// nothing now, EMSGSIZE: `together` is more than kMaxContiguous, else read()'s. Where fewer than
  /// `together` have come it shows those, and the read handler runs again when there are more; one
  /// that is set meanwhile runs for what is there.
  /// The bytes stay until the next consume(), read() or peek() of this connection, close() or
  /// rebind(). Who keeps them long stops the peer.
  View peek(std::size_t together = 1);
  /// The first `size` bytes that peek() showed have been read; the rest comes first in the next.
  void consume(std::size_t size) noexcept;
  /// Room for `size` bytes at least, kMaxContiguous at most, of what is sent next; empty with
  /// errno, EAGAIN: not now. Until commit() or close() it is the caller's and write() says EBUSY.
  std::span<std::byte> reserve(std::size_t size);
  /// The first `size` bytes of the room (all, if it is smaller) are written, as by write(); 0 gives
  /// it back. Never short.
  /// What is committed in one iteration leaves together at its end, or by flush().
  void commit(std::size_t size) noexcept;
  /// As write(), from where the bytes lie: all are taken or, with EAGAIN, none. They stay the
  /// library's until `release` runs: once, from the loop, never inside send(); with an error where
  /// they were not handed on before the end of the connection or of the loop. It may run after
  /// close(), never after the loop's end.
  ssize_t send(const Outgoing& bytes);

  /// Null removes. Setting one from inside itself takes effect with the next call. Setting the
  /// first throws std::bad_alloc where there is no memory to watch the connection with; none is set
  /// then.
  void set_read_handler(Handler handler);
  /// As set_read_handler().
  void set_write_handler(Handler handler, Barrier barrier = Barrier::kNo);
  /// Runs once, from the loop, when it is known that the peer has closed (its shutdown() counts) or
  /// that a connection which stood has failed; nobody need read for that. What came before can
  /// still be read. Set later than that, it runs in the next iteration.
  /// With CloseOn::kFailure only a failure runs it, also one after the peer's end of stream.
  void set_close_handler(Handler handler, CloseOn when = CloseOn::kEnd);
  /// Removes every handler, also connect()'s: for whoever takes the connection over.
  void clear_handlers() noexcept;
  /// Whether one is set.
  bool has_read_handler() const noexcept { return static_cast<bool>(on_read_); }
  bool has_write_handler() const noexcept;  ///< whether one is set

  /// Half-close: the peer gets everything written, then end of stream; reading goes on.
  /// 0, or -1 with errno (EOPNOTSUPP where Capabilities::half_close is false).
  int shutdown();
  /// Ends both directions, over every transport: the peer gets everything written, then end of
  /// stream. From now on read() says end of stream, which the read handler is called for; what came
  /// and was not read, or comes, is dropped. write() says EPIPE, which the write handler is called
  /// for, also while output waits. 0, or -1 with errno ENOTCONN.
  int shutdown_both();
  /// Gives the connection up: no handler runs any more, `this` is gone for the caller (as after
  /// delete). What write() took is still delivered within a bounded linger, which never blocks the
  /// loop; where the loop ends meanwhile, it gets the time of option end-linger. Safe inside any
  /// handler, its own included.
  void close() noexcept;
  /// As close(), but cuts the stream: nothing more is delivered, and the peer is to see an error
  /// instead of a clean end of stream. Its read() says ECONNRESET after what had arrived before,
  /// where Capabilities::reset is true; docs/transports.md has the rest. Bytes of send() are
  /// released with an error. Of a ConnectionPtr: owner.release()->abort().
  void abort() noexcept;

  // --- blocking, for handshakes and replication-style code ---------------------------------------
  // Handlers do not run meanwhile, and no other connection of the loop loses anything.
  /// Waits until read() (kReadable) or write() (kWritable) would not say EAGAIN, as poll(2) does:
  /// also for the end of the stream and for failures, which that call tells. False with errno
  /// ETIMEDOUT, or ENOTCONN before the connection stands.
  bool sync_wait(ae::Mask direction, ae::Duration timeout);
  /// Reads exactly `size` bytes. Returns size; fewer at end of stream; -1 with errno. ETIMEDOUT in
  /// state kConnected: the time is over, and what came is lost, as with Redis's syncRead.
  ssize_t sync_read(void* buffer, std::size_t size, ae::Duration timeout);
  /// Writes all, and does what flush() does, waiting for room where the peer has none yet. Returns
  /// size, or -1 with errno. Once all was taken it is no failure if the time ends before the last
  /// of it could be handed on: the loop goes on with that.
  ssize_t sync_write(const void* buffer, std::size_t size, ae::Duration timeout);
  /// Reads up to a newline, drops it and a carriage return before it, ends the text with NUL.
  /// Returns the length without terminators; -1 with errno: EMSGSIZE when size-1 bytes hold no
  /// newline, ECONNRESET when the stream ended first.
  ssize_t sync_readline(char* buffer, std::size_t size, ae::Duration timeout);

  // --- facts -------------------------------------------------------------------------------------
  State state() const noexcept { return state_; }  ///< how far it is
  /// The first failure, in words; empty if there is none.
  const std::string& last_error() const noexcept { return failure_.text; }
  /// Why it failed, or will be said to have failed once what arrived before has been read. Empty:
  /// it did not, as far as is known.
  virtual const Failure& why_ended() const noexcept { return failure_; }
  std::error_code error_code() const noexcept { return failure_.code; }  ///< that of last_error()
  /// For how long the peer that refused it asked to be left in peace; 0 if it did not.
  std::chrono::milliseconds retry_after() const noexcept { return failure_.retry_after; }
  const ConnectionType& type() const noexcept { return type_; }  ///< the transport
  /// Null after the loop was destroyed under the connection, and between leave() and join().
  ae::EventLoop* loop() const noexcept { return loop_; }
  /// A descriptor that belongs to this connection alone, or -1 (rdma: descriptors are the loop's).
  virtual int fd() const noexcept { return -1; }
  virtual std::string local_address() const = 0;  ///< "10.0.0.1:6379"; a path; "" if unknown
  virtual std::string peer_address() const = 0;   ///< as local_address()
  /// The same in two parts.
  Address local_host_port() const { return split_address(local_address()); }
  /// The same of the peer.
  Address peer_host_port() const { return split_address(peer_address()); }
  /// Whether the peer is on this host; no value if it cannot be known.
  virtual std::optional<bool> is_local() const = 0;
  /// What carries the bytes, in one line for people: "tcp 10.0.0.2:50400 > 10.0.0.1:6379", this
  /// side first; docs/paths.md has what each transport says. "" before the connection has stood;
  /// after its end what is still known.
  std::string path() const;
  /// Details of the transport for people (CLIENT INFO, logs): window sizes, queue use, device.
  virtual std::vector<std::pair<std::string, std::string>> info() const { return {}; }
  virtual std::string peer_certificate() const { return {}; }  ///< PEM; "" where there is none
  /// Option peer-user; "" where there is none.
  virtual std::string peer_user() const { return {}; }
  std::uint64_t id() const noexcept { return id_; }                  ///< unique in the process
  std::uint64_t bytes_read() const noexcept { return bytes_read_; }  ///< since it began
  std::uint64_t bytes_written() const noexcept { return bytes_written_; }  ///< since it began

  /// One pointer for the host program; the library does not touch it.
  void* private_data() const noexcept { return private_data_; }
  void set_private_data(void* data) noexcept { private_data_ = data; }  ///< see private_data()

  /// Moves an idle or connected connection to another loop (handlers come along). Call it on the
  /// old loop's thread; from then on the connection belongs to the new loop's: hand it over with a
  /// post to that loop. False with errno EOPNOTSUPP where Capabilities::rebind is false, EBUSY
  /// while it connects, inside a handler of its own and before commit(), EAGAIN while what was
  /// committed or sent in place waits, ENOMEM: it is where it was then. Where the other loop has no
  /// memory to watch it with, the connection fails there.
  bool rebind(ae::EventLoop& loop);
  /// rebind() in two steps, for a host that moves state of its own between them and knows no target
  /// yet: leave() on the old loop's thread, join() on the new one's. leave() fails as rebind()
  /// does. In between nothing but join() and close() may be called, and close() is as at the loop's
  /// end: nobody delivers what the transport still holds. join() returns false with errno ENOMEM
  /// where there is no memory to watch the connection with: it has failed then.
  bool leave();
  bool join(ae::EventLoop& loop);  ///< see leave()

  ~Connection() override;

 protected:
  /// In state kNone, in the loop's ConnectionSet. Throws std::bad_alloc. `type` has to outlive it.
  Connection(const ConnectionType& type, ae::EventLoop& loop);

  // --- what a transport implements ---------------------------------------------------------------
  // Same meaning as the public operation; the base has checked state and arguments.
  /// As connect(); ends later, from the loop, by move_to(kConnected) or fail(), and then
  /// dispatch_connect().
  virtual void do_connect(const Endpoint& to) = 0;
  /// As connect_blocking(): returns with the state kConnected or kError. Runs no handler.
  virtual void do_connect_blocking(const Endpoint& to, ae::TimePoint deadline) = 0;
  virtual ssize_t do_read(void* buffer, std::size_t size) = 0;     ///< as read()
  virtual ssize_t do_writev(const iovec* vectors, int count) = 0;  ///< as writev()
  virtual ssize_t do_readv(const iovec* vectors, int count);  ///< the default: do_read() for each
  // In place, where the transport has memory of its own to show. Otherwise the base reads into and
  // writes from chunks that it borrows while they hold something.
  /// Whether do_peek() and do_consume() work: unread bytes are shown where they arrived.
  virtual bool peeks_in_place() const noexcept { return false; }
  /// As peek(): 1, 0 at end of stream, -1 with errno; EMSGSIZE: so many are there, in pieces.
  virtual ssize_t do_peek(std::size_t /*together*/, View& /*view*/) { return 0; }
  /// The next read handler need not wait until as many have come as do_peek() was asked for.
  virtual void do_peek_anything() noexcept {}
  /// Returns how many of them, no more than do_peek() showed.
  virtual std::size_t do_consume(std::size_t /*size*/) noexcept { return 0; }
  /// Whether do_reserve() and do_commit() work, and mean what reserve() and commit() do. Empty with
  /// EOPNOTSUPP: not this time, the base has to lend a chunk.
  virtual bool reserves_in_place() const noexcept { return false; }
  /// As reserve(); see reserves_in_place().
  virtual std::span<std::byte> do_reserve(std::size_t /*size*/) { return {}; }
  virtual void do_commit(std::size_t /*size*/) noexcept {}  ///< as commit()
  /// Whether do_send() may take these bytes. False where it is sure to refuse them: they leave with
  /// what is written before and after them then.
  virtual bool sends_in_place(const Outgoing& /*bytes*/) const noexcept { return true; }
  /// Takes all of the bytes, and calls references_done() when it needs them no more; or fewer, and
  /// the rest comes in the next call, before anything else; or -1: EAGAIN, not now (handlers are
  /// called when it is worth another try, as for do_writev()); EOPNOTSUPP, all of them are to be
  /// written by do_writev(). A rest that never comes (the connection ends) is the end of it, too.
  virtual ssize_t do_send(const Outgoing& bytes);
  /// A handler was set or removed (in on_read_, on_write_, barrier_, close_wanted()).
  virtual void handlers_changed() = 0;
  /// handlers_changed(), where nobody could make the call again: without memory for it the
  /// connection fails, and a second try is for those who wait to be told. If that fails as well,
  /// they learn it from the next call.
  void watch_or_fail() noexcept;
  /// As path(), of a connection that stands or stood. The default: the type and both addresses.
  virtual std::string do_path() const;
  /// As shutdown(): 0, or -1 with errno, EOPNOTSUPP without Capabilities::half_close.
  virtual int do_shutdown() = 0;
  /// As shutdown_both(), where the base has dropped what it had read ahead. The default: the base
  /// refuses reads after do_shutdown().
  virtual int do_shutdown_both();
  /// Hands what write() took to the layer below or the device, waiting until `until` at most, and
  /// not at all for a time that is past. True if nothing is left here. Runs no handler.
  virtual bool do_flush(ae::TimePoint /*until*/) noexcept { return true; }
  /// The loop is about to go, and do_abandon() comes next: until `until` at most, what write() took
  /// may still leave, also after close(). True if no waiting would make a difference any more.
  /// Called again and again, often for a time that is past, while others are served in turn. Runs
  /// no handler.
  virtual bool do_drain(ae::TimePoint /*until*/) noexcept { return true; }
  /// How long close() may go on delivering (option linger).
  virtual ae::Duration linger() const noexcept { return std::chrono::seconds(3); }
  /// How long all calls of do_drain() together may take (option end-linger); zero: none is made.
  virtual ae::Duration end_linger() const noexcept { return ae::Duration::zero(); }
  /// Begin to go; handlers are cleared. Ends, now or later, in release(). Where aborts() is true
  /// nothing more is delivered, and the peer is to see an error where the transport can.
  virtual void do_close() noexcept = 0;
  /// Waits until read (or write) would not say EAGAIN, or the deadline. Runs no handler. False: the
  /// deadline came first.
  virtual bool wait_for(ae::Mask direction, ae::TimePoint deadline) = 0;
  /// The layer above has the peer's word that it sends no more: do_close() need not wait for that.
  virtual void do_expect_no_more() noexcept {}
  /// The loop is being destroyed: free everything that hangs on it, without waiting. Not called
  /// after release().
  virtual void do_abandon() noexcept = 0;
  /// To another loop, or (null) to none until join(). May throw std::bad_alloc, having done
  /// nothing.
  virtual bool do_rebind(ae::EventLoop* loop);
  /// At the other loop: for a layer, the connection below joins as well. False: it has failed.
  virtual bool do_join(ae::EventLoop& /*loop*/) { return true; }
  // For layers: the same of the connection below.
  /// wait_for() of the connection below.
  static bool wait_for(Connection& below, ae::Mask direction, ae::TimePoint deadline) {
    return below.wait_for(direction, deadline);
  }
  /// rebind() of the connection below, or (null) leave().
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
  /// The oldest `count` of what do_send() took are not needed any more, from anywhere; also after
  /// do_close(). The base releases them from the loop, and the others when the connection is
  /// destroyed or abandoned, when nothing of the transport's can read them.
  void references_done(std::size_t count, std::error_code error = {}) noexcept;

  // --- what the base gives a transport -----------------------------------------------------------
  /// Whether the connection is still there after a handler.
  enum class [[nodiscard]] Alive : bool{
      kGone,  ///< it was closed
      kYes,   ///< it goes on
  };
  /// Runs a handler. After kGone the connection is closed: return without touching it.
  Alive dispatch(ae::HandlerSlot<void(Connection&)>& slot) {
    Running running{running_};
    const std::uint64_t before = &slot == &on_read_ ? bytes_read_ : bytes_written_;
    vain_.begin();
    slot.run(*this);
    if (vain_.worth_a_look()) [[unlikely]]
      look_at_run(&slot == &on_read_, before);
    return closing_ ? Alive::kGone : Alive::kYes;
  }
  /// Runs the connect handler, once.
  Alive dispatch_connect();
  /// For the event that there is room to write: what waits in the base goes first.
  Alive dispatch_write();
  /// Whether somebody wants to know that there is room to write: ask this instead of on_write_.
  bool write_wanted() const noexcept { return (on_write_ && !output_full_) || output_blocked_; }
  /// Whether somebody waits for peer_gone(): worth a look at what nobody reads.
  bool close_wanted() const noexcept { return close_watch_ != nullptr && !close_due(); }
  /// It is known that the peer sends nothing more, whether or not all has been read. Runs nothing.
  /// The base knows by itself of failures and of the end of stream that a read found.
  void peer_gone() noexcept;
  /// The only way states change, in the order of conn/state.h. Runs nothing.
  void move_to(State next);
  /// To kError, for this reason; the first failure stays. Runs nothing: the handlers are due.
  void fail(Failure failure);
  /// After fail(), of a connection that stood: what had arrived is still there, and do_read() is
  /// asked for it until it returns no more, by no_more_unread().
  void keep_unread() noexcept { keeps_unread_ = died_; }
  ssize_t no_more_unread() const noexcept;  ///< -1 with the failure's errno
  /// Whether keep_unread() holds of the connection below.
  static bool keeps_unread(const Connection& below) noexcept { return below.keeps_unread_; }
  /// Of the listener that accepted it, or of the address it leads to; free again with its end.
  void occupy(Quota::Place place) noexcept { place_ = std::move(place); }
  /// Frees the connection once no handler is on the stack. The last thing do_close() leads to.
  void release() noexcept;

  /// This process is a child of fork(), and its parent made the connection.
  bool inherited() const noexcept;
  bool closing() const noexcept { return closing_; }  ///< do_close() was called
  bool aborts() const noexcept { return aborts_; }    ///< abort() was called
  /// An established connection died and no read() (or write()) has reported it yet: the handler of
  /// that direction is due.
  bool error_unread() const noexcept { return died_ && !read_told_; }
  /// As error_unread(), of write().
  bool error_unwritten() const noexcept { return died_ && !write_told_; }
  struct RebindState;
  /// For do_rebind(), in two steps. The first needs memory and may throw, and nothing has changed
  /// then; the connection arrives at the other loop by a post or by join(), where
  /// handlers_changed() is called. After leave() it is no more on the old loop, so the transport
  /// takes its events off that before. Dropped without leave(), it undoes itself.
  class Move {
   public:
    /// `to`: the loop, or null where join() will tell. Throws std::bad_alloc.
    Move(Connection& connection, ae::EventLoop* to);
    ~Move();
    Move(const Move&) = delete;
    Move& operator=(const Move&) = delete;
    void leave() noexcept;  ///< from here on it is not on the old loop

   private:
    Connection& connection_;
    ae::EventLoop* to_;  // null: join() will tell
    std::shared_ptr<RebindState> rebind_state_;
  };

  using Slot = ae::HandlerSlot<void(Connection&)>;  ///< a handler, for dispatch()
  Slot on_connect_;                                 ///< of connect(), until it has run
  Slot on_read_;                                    ///< of set_read_handler()
  Slot on_write_;                                   ///< of set_write_handler(); see write_wanted()
  Barrier barrier_ = Barrier::kNo;                  ///< of set_write_handler()

 private:
  friend class CloseWatch;
  friend class ConnectionSet;
  friend class InPlace;
  struct Running {  // counts the handlers of this connection that are on the stack
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
  ConnectionSet* set_;           // null on the way to another loop and after the loop's end
  LoopCounters* counters_;       // the same
  InPlace* in_place_ = nullptr;  // while bytes wait that were read ahead, or are to be sent
  std::unique_ptr<CloseWatch> close_watch_;  // while there is a close handler
  State state_ = State::kNone;
  std::uint8_t running_ = 0;     // handlers on the stack
  bool given_up_ = false;        // close() or abort() was called
  bool aborts_ = false;          // it was abort()
  bool closing_ = false;         // and do_close(): nothing that was committed waits any more
  bool output_blocked_ = false;  // committed bytes wait for room
  bool output_full_ = false;     // send() and reserve() refuse more, whatever the transport takes
  Vain vain_;
  bool reads_fill_ = false;  // peek() found as much as there was room for
  bool released_ = false;    // the loop's deferred list owns this object
  bool abandoned_ = false;   // the loop has gone, or is about to
  bool died_ = false;        // failed after it had been connected
  bool peer_gone_ = false;   // its end of stream is known, and may still be unread
  bool read_told_ = false;   // a read() (or write()) has returned the failure
  bool write_told_ = false;
  bool keeps_unread_ = false;  // it failed, and do_read() still has what came before
  Failure failure_;
  ae::TimePoint began_{};  // to connect, or to be accepted
  const ae::MadeHere made_here_;
  std::uint64_t id_;
  std::uint64_t bytes_read_ = 0, bytes_written_ = 0;
  std::size_t reserved_ = 0;  // room that reserve() gave, until commit()
  void* private_data_ = nullptr;
  Quota::Place place_;
  Connection* set_next_ = nullptr;  // links of the loop's ConnectionSet
  Connection** set_link_ = nullptr;
  std::shared_ptr<RebindState> rebind_state_;  // set while a rebind's post is under way
};

/// Owns a connection: dropping it closes it.
struct ConnectionCloser {
  /// Closes it.
  void operator()(Connection* connection) const noexcept { connection->close(); }
};
/// Owns a connection: dropping it closes it.
using ConnectionPtr = std::unique_ptr<Connection, ConnectionCloser>;

}}  // namespace conn
