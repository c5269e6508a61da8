// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Carrier and CarrierHost: what the author of a transport implements, and what the core provides
// for it. A Carrier moves the bytes of one connection; its CarrierHost has the connection's state
// and runs the program's handlers. docs/add-a-transport.md walks through a whole transport.
//
// Everything here is called on the thread of the connection's loop. Handlers of the program run
// only inside CarrierHost::run_*_handler(), which a carrier calls from the loop, never from within
// one of its own operations.

#include <sys/types.h>
#include <sys/uio.h>

#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "ae/event_loop.h"
#include "conn/endpoint.h"
#include "conn/error.h"
#include "conn/in_place.h"
#include "conn/kit/quota.h"
#include "conn/peer_credentials.h"
#include "conn/state.h"

namespace conn { inline namespace AECONN_ABI {

class Carrier;
class CarrierBase;
class ConnectionType;
struct SocketAddress;

/// Describes how a connection came to its present carrier (the object that moves its bytes), as
/// text for people; see CarrierHost::set_origin().
struct Origin {
  /// Pairs of name and value, shown at the beginning of info().
  std::vector<std::pair<std::string, std::string>> facts;
  std::string path;  ///< text about the origin, shown at the end of ConnectionFacts::path()
};

/// A connection, as its carrier sees it. The core implements this class
/// (conn/core/connection_core.h).
class AECONN_API CarrierHost : public ae::Deferred {
 public:
  /// Says whether the connection still exists after one of its handlers has run.
  enum class [[nodiscard]] Alive : bool{
      kGone,  ///< the handler closed the connection: return without accessing it or the carrier
      kYes,   ///< the connection still exists: the handler has not closed it
  };

  // --- what the carrier asks ---------------------------------------------------------------------
  State state() const noexcept { return state_; }  ///< current state
  /// The loop of the connection; null after the loop has ended, and after Carrier::leave(nullptr)
  /// until the connection joins another one.
  ae::EventLoop* loop() const noexcept { return loop_; }
  /// The connection's first failure; empty: it has not failed.
  const Failure& failure() const noexcept { return failure_; }
  /// Number of the connection, unique in the process.
  std::uint64_t id() const noexcept { return id_; }
  /// Returns whether the program has set a connect handler that has not run yet. No other handler
  /// may run before it.
  bool connect_due() const noexcept { return wanted_.connected; }
  /// Returns whether the program has set a read handler.
  bool wants_read() const noexcept { return wanted_.read; }
  /// Returns whether the carrier must signal when it accepts data: because a write handler is set,
  /// or because the core has pending output.
  bool wants_write() const noexcept { return (wanted_.write && !wanted_.full) || wanted_.blocked; }
  /// Says whether the write handler must run before the read handler if both are due.
  Barrier barrier() const noexcept { return wanted_.barrier; }
  /// Returns whether a close handler waits for peer_gone() or a failure. The carrier must then
  /// watch for the end of the peer's stream even if nothing is read. With CloseOn::kFailure this
  /// stays true after peer_gone(), until the connection has failed.
  virtual bool wants_close() const noexcept = 0;
  /// Returns whether an established connection has failed and no read() has reported the failure
  /// yet. The read handler is then due.
  bool error_unread() const noexcept { return lost_.established && !lost_.read_reported; }
  /// Returns whether an established connection has failed and no write() has reported the failure
  /// yet. The write handler is then due.
  bool error_unwritten() const noexcept { return lost_.established && !lost_.write_reported; }
  /// Returns whether a read or write handler must run, so that the program learns that an
  /// established connection has failed.
  bool error_due() const noexcept {
    return (wants_read() && error_unread()) || (wants_write() && error_unwritten());
  }
  /// Returns whether Carrier::close() was called for this connection's carrier.
  bool closing() const noexcept { return ending_ >= Ending::kClosing; }
  /// Returns whether the program has called Connection::abort().
  bool aborts() const noexcept { return aborts_; }
  /// Returns whether the connection was created in the parent of this process, before fork().
  bool inherited() const noexcept { return made_here_.inherited(); }

  // --- what the carrier reports ------------------------------------------------------------------
  /// Changes the state. The order of states is kNone, then kConnecting (set by the core) or
  /// kAccepting, then kConnected, then kClosed; kNone may also become kConnected directly. Runs no
  /// handler.
  void move_to(State next);
  /// Changes the state to kError, from any state but kClosed, and records the reason. Only the
  /// first failure is recorded. Runs no handler, but makes the handlers due.
  void fail(Failure failure);
  /// Announces that an established connection that has failed may still have data that arrived
  /// before the failure: Carrier::read() is then called until it returns no_more_unread(). To be
  /// called after each fail(). If there are no such data, the call does no harm.
  void keep_unread() noexcept { lost_.unread_kept = lost_.established; }
  /// Returns whether read() may still return data that arrived before the connection's failure, see
  /// keep_unread().
  bool keeps_unread() const noexcept { return lost_.unread_kept; }
  ssize_t no_more_unread() const noexcept;  ///< returns -1, and sets errno to that of the failure
  /// Announces that the peer sends nothing more, whether or not everything has been read. To be
  /// called again when Carrier::why_ended() has changed. Runs no handler. The host itself detects
  /// failures, and the end of stream when a read returns it.
  void peer_gone() noexcept;
  /// Announces that the connection has lost its path (the network route and devices that carry it)
  /// and goes on without one, or has found another path: the path handler is then due. Runs no
  /// handler.
  virtual void path_changed() noexcept = 0;
  /// Counts the connection in a quota, by storing `place`, until the connection is destroyed: in
  /// the quota of the listener that accepted it (option max-connections), or in the count of
  /// connections to the peer's address (option spread). Releases an earlier place.
  void occupy(Quota::Place place) noexcept { place_ = std::move(place); }
  /// Frees the connection together with its carrier once none of its handlers is executing. Must be
  /// the last step of Carrier::close().
  void release() noexcept;
  /// Calls Carrier::interest_changed() for a caller that cannot repeat the call. If memory runs
  /// out, the connection fails, and a second call lets waiting handlers learn of the failure. If
  /// the second call fails as well, the next operation reports the failure.
  void watch_or_fail() noexcept;

  /// Replaces the carrier of this connection by that of `from`, a connection on the same loop that
  /// has just been established and has not read or written anything. The state becomes kConnected.
  /// `from` gets the old carrier, and the caller must close it.
  virtual void take_over(CarrierHost& from) noexcept = 0;
  /// Stores the description of how the connection got its carrier, which info() and path() then
  /// show. Throws std::bad_alloc.
  virtual void set_origin(Origin origin) = 0;

  /// Runs the connect handler if it has not run yet. connect_due() is false afterwards, and the
  /// host does not call Carrier::interest_changed() for this: a carrier that watches less while the
  /// connect handler is due begins to watch for the other handlers itself.
  virtual Alive run_connect_handler() = 0;
  /// Runs the read handler, if one is set. To be called when read() would not fail with EAGAIN.
  virtual Alive run_read_handler() = 0;
  /// Sends pending output, then runs the write handler if one is set. To be called when the carrier
  /// accepts data.
  virtual Alive run_write_handler() = 0;
  /// Reports that the oldest `count` segments (memory of the program) taken by Carrier::send() are
  /// no longer needed. May be called from anywhere, including after Carrier::close(); the program's
  /// release functions run from the loop. All other segments are released when the connection is
  /// destroyed or abandoned, when the carrier can no longer read them.
  virtual void references_done(std::size_t count, std::error_code error) noexcept = 0;

 protected:
  friend class CarrierBase;
  /// Creates a host that has no carrier and no loop yet.
  CarrierHost() noexcept;
  /// Creates the host of `carrier`, for a connection on `loop`.
  CarrierHost(std::unique_ptr<Carrier> carrier, ae::EventLoop& loop) noexcept;
  ~CarrierHost() override;

  /// Called after each change of the state; `from` is the previous state.
  virtual void state_changed(State from) noexcept = 0;
  /// Called by peer_gone() when the event that a close handler waits for may have happened.
  virtual void peer_gone_changed() noexcept = 0;
  /// Called by release(), at most once, when the carrier no longer needs its host: from then on
  /// both can be destroyed.
  virtual void released() noexcept = 0;

  /// Returns the result of a read or a write that the state forbids. Like a socket, each direction
  /// reports the failure once, and fails with ENOTCONN afterwards.
  ssize_t refuse(ae::Mask direction) noexcept;
  /// Exchanges the carriers of two hosts, each of which may have none.
  void exchange_carriers(CarrierHost& other) noexcept;
  /// Moves the connection to `loop`, after leave(), and informs the quota's object that was passed
  /// to occupy(), because a listener group counts the connections of each loop.
  void enter_loop(ae::EventLoop& loop) noexcept;
  /// Returns whether it is known that the peer sends nothing more.
  bool gone() const noexcept { return peer_gone_ || lost_.established || state_ == State::kClosed; }

  /// The steps of closing a connection. The value only increases, and may skip steps.
  enum class Ending : std::uint8_t {
    kOpen,     ///< the program owns the connection and has not closed it
    kGivenUp,  ///< close() or abort() was called; pending output is passed to the carrier first
    kClosing,  ///< Carrier::close() was called; all pending output was passed to the carrier before
    kReleased  ///< the loop will destroy the connection once none of its handlers is executing
  };
  /// The handlers that may become due.
  struct WantedHandlers {
    bool connected = false;  ///< whether a connect handler is set
    bool read = false;       ///< whether a read handler is set
    bool write = false;      ///< whether a write handler is set
    bool blocked = false;    ///< whether output waits until the carrier accepts more data
    /// Returns whether a read handler is set and nothing else. Compares all members at once.
    bool only_read() const noexcept {
      return std::bit_cast<std::uint32_t>(*this) ==
             std::bit_cast<std::uint32_t>(WantedHandlers{false, true, false, false});
    }
  };
  /// The events that the carrier must watch for.
  struct Wanted : WantedHandlers {
    /// Whether send() and reserve() refuse more output, even if the carrier accepts data.
    bool full = false;
    /// Says whether the write handler runs before the read handler.
    Barrier barrier = Barrier::kNo;
  };
  /// Says whether an established connection has failed, and which of its calls have returned the
  /// failure.
  struct Lost {
    bool established = false;     ///< true if an established connection has failed
    bool read_reported = false;   ///< true if a read has returned the failure
    bool write_reported = false;  ///< true if a write has returned the failure
    /// True if the carrier still returns data that arrived before the failure.
    bool unread_kept = false;
  };

  std::unique_ptr<Carrier> carrier_;  ///< the carrier of the connection; null: there is none
  ae::EventLoop* loop_ = nullptr;     ///< the connection's loop, see loop()
  State state_ = State::kNone;        ///< the connection's state
  Ending ending_ = Ending::kOpen;     ///< the step that closing the connection has reached
  Wanted wanted_;                     ///< the events that the carrier must watch for
  /// Whether the connection has failed, and which calls have reported that.
  Lost lost_;
  /// True if the program has called abort(), or output of the closed connection was discarded.
  bool aborts_ = false;
  /// True if it is known that the peer sends nothing more, though the program may not have read
  /// everything yet.
  bool peer_gone_ = false;
  /// Tells whether the connection was created before fork(), in the parent process.
  const ae::MadeHere made_here_;
  std::uint64_t id_;    ///< number of the connection, unique in the process
  Failure failure_;     ///< the first failure; empty: there is none
  Quota::Place place_;  ///< counts the connection in a quota, see occupy()
};

/// The facts about a connection that its carrier knows; conn::ConnectionFacts has a function for
/// each of them. Carrier::facts() returns this object. The functions may be called in any state.
class AECONN_API CarrierFacts {
 public:
  virtual ~CarrierFacts();
  /// Address of this end of the connection; "", the default: unknown.
  virtual std::string local_address() const { return {}; }
  virtual std::string peer_address() const { return {}; }  ///< address of the peer; "": unknown
  /// Address of this end for socket calls (conn/kit/resolver.h); unset, the default: unknown.
  virtual SocketAddress local_sockaddr() const noexcept;
  /// Address of the peer for socket calls; unset, the default: unknown.
  virtual SocketAddress peer_sockaddr() const noexcept;
  /// Returns whether the peer is on this host; no value, the default: unknown.
  virtual std::optional<bool> is_local() const { return std::nullopt; }
  /// File descriptor that only this connection uses, or -1.
  virtual int fd() const noexcept { return -1; }
  /// The path to the peer, for a connection that is or was established. Empty: the host shows the
  /// name of the transport and both addresses instead.
  virtual std::string path() const { return {}; }
  /// Details about the connection for logs, as pairs of a name and a value.
  virtual std::vector<std::pair<std::string, std::string>> info() const { return {}; }
  /// The peer's certificate in PEM format; "": none.
  virtual std::string peer_certificate() const { return {}; }
  /// The user that option peer-user has determined for the peer; "": none.
  virtual std::string peer_user() const { return {}; }
  /// The process at the other end; no value: unknown.
  virtual std::optional<PeerCredentials> peer_credentials() const { return std::nullopt; }
};

/// The members that every carrier has: its transport, and its host, which is the connection. A
/// carrier is also the CarrierFacts of its connection, unless its facts() returns another object.
class AECONN_API CarrierBase : protected CarrierFacts {
 public:
  CarrierBase(const CarrierBase&) = delete;
  CarrierBase& operator=(const CarrierBase&) = delete;
  ~CarrierBase() override;
  // make_connection() (conn/core/make_connection.h) creates a carrier together with its connection,
  // in one block of memory, and is the only way to create one.
  static void* operator new(std::size_t) = delete;
  /// Frees the block of memory, which also contains the connection, once both are destroyed.
  static void operator delete(void* carrier) noexcept;
  /// The transport whose connection this carrier carries.
  const ConnectionType& type() const noexcept { return type_; }
  /// The connection that this carrier carries.
  CarrierHost& host() const noexcept { return *host_; }

 protected:
  /// Makes a carrier of the transport `type`, which must outlive this object. The host is set
  /// before any other function is called.
  explicit CarrierBase(const ConnectionType& type) noexcept : type_(type) {}

  /// Says whether the connection still exists after a handler ran.
  using Alive = CarrierHost::Alive;

  /// Returns whether the connection is established and has a read handler, no connect or write
  /// handler, and no output that the carrier has not accepted yet: then only the read handler can
  /// become due.
  bool only_reads() const noexcept {
    return host_->state_ == State::kConnected && host_->wanted_.only_read();
  }

  // Each of the following functions calls the function of the same name of the CarrierHost.

  State state() const noexcept { return host_->state(); }  ///< current state of the connection
  /// Event loop of the connection; null after the loop has ended, and while the connection moves to
  /// another one.
  ae::EventLoop* loop() const noexcept { return host_->loop(); }
  /// Returns whether Carrier::close() was called for this carrier.
  bool closing() const noexcept { return host_->closing(); }
  /// Returns whether the program has called Connection::abort().
  bool aborts() const noexcept { return host_->aborts(); }
  /// Returns whether the connection was created in the parent of this process, before fork().
  bool inherited() const noexcept { return host_->inherited(); }
  void move_to(State next) { host_->move_to(next); }  ///< changes the connection's state to `next`
  /// Changes the connection's state to kError, for the reason `failure`.
  void fail(Failure failure) { host_->fail(std::move(failure)); }

 private:
  friend class CarrierHost;
  CarrierHost* host_ = nullptr;
  const ConnectionType& type_;
};

/// Carries the bytes of one connection; a transport derives its class from it. Each function
/// implements the operation of conn::Connection with the same name unless its comment says
/// otherwise; the core has already checked the state and the arguments. Functions that may block
/// say so; no other function does.
class AECONN_API Carrier : public CarrierBase {
 public:
  // --- what every carrier implements -------------------------------------------------------------
  /// Begins to connect to `to`, which check() of the type has accepted. The carrier must call
  /// move_to(kConnected) or fail(), at once or later, and afterwards, from the loop,
  /// run_connect_handler(). May throw std::bad_alloc or, before anything has begun, Error; the core
  /// then fails the connection with the text of an Error, and its code or else EINVAL.
  virtual void connect(const Endpoint& to) = 0;
  /// Connects and blocks until `deadline` at the latest. Returns in state kConnected or kError; or
  /// in kConnecting if the deadline has passed, or if Interruption::came() is true after EINTR: the
  /// core then calls fail(), and what the peer answers later must change nothing. Runs no handler.
  /// May throw like connect().
  virtual void connect_blocking(const Endpoint& to, ae::TimePoint deadline) = 0;
  /// Reads like read(2). Returns 0 at end of stream, and then moves to kClosed if shutdown() was
  /// called before. Called in state kConnected; in kError only after keep_unread().
  virtual ssize_t read(void* buffer, std::size_t size) = 0;
  /// Writes like writev(2), and may accept fewer bytes than given. `count` may exceed IOV_MAX, and
  /// some vectors may be empty, but not all. Must not raise SIGPIPE. Accepted bytes are sent in
  /// order, or the connection fails: a carrier that finds that the peer accepts no more data must
  /// call fail(). After shutdown() it returns -1 with EPIPE, without calling fail().
  virtual ssize_t writev(const iovec* vectors, int count) = 0;
  /// Called after the result of connect_due(), wants_read(), wants_write(), wants_close() or
  /// barrier() of the host may have changed, except by run_connect_handler(): the carrier must
  /// watch for what is wanted now. In state kError, the read handler is due if error_unread() is
  /// true, the write handler if error_unwritten() is; a descriptor must no longer be watched,
  /// because one that has failed stays ready and would wake the loop forever. May throw
  /// std::bad_alloc.
  virtual void interest_changed() = 0;
  /// Ends the output like Connection::shutdown(). Returns 0, or -1 with errno. Moves to kClosed if
  /// read() has returned 0 before. May be called again.
  virtual int shutdown() = 0;
  /// Begins to close the connection, in any state; the program's handlers are already cleared. The
  /// carrier must call release(), at once or later: when the bytes accepted by writev() are
  /// delivered, or the time linger() has passed. The peer then reads end of stream, not an error,
  /// even if this end has left bytes unread. If aborts() is true, the carrier delivers nothing
  /// more, and the peer should see an error if the transport can signal one.
  virtual void close() noexcept = 0;
  /// Frees everything that depends on the loop, without waiting, because the loop is being
  /// destroyed. The peer should see the same as after close(). If inherited() is true, the process
  /// is a child of fork(), and the connection continues in the parent process: the carrier must
  /// neither read nor write. The core sets the state to kError. Called before close() or between
  /// close() and release(), but not after release(); functions of facts() may still be called
  /// afterwards. The destructor of a carrier may still call functions of its host that only answer,
  /// such as aborts(), but must not report anything to it.
  virtual void abandon() noexcept = 0;
  /// Blocks until read() (`direction` is kReadable) or writev() (kWritable) would return something
  /// other than EAGAIN: bytes or space, but also the end of the stream, a failure, or EPIPE after
  /// shutdown(). Runs no handler. Returns false if the deadline has passed, or if
  /// Interruption::came() is true after EINTR.
  virtual bool wait_for(ae::Mask direction, ae::TimePoint deadline) = 0;

  // --- what a carrier may implement: the defaults are correct, but may be slow -------------------
  /// Returns the object that knows the facts of the connection. The default is this carrier, which
  /// then overrides functions of CarrierFacts. A carrier with many facts may have a separate object
  /// for them; it must return the same object in each call, and the object must live as long as the
  /// carrier.
  virtual const CarrierFacts& facts() const noexcept { return *this; }
  /// Writes one piece of at least one byte, as writev() does. The default calls writev().
  virtual ssize_t write(const void* buffer, std::size_t size);
  /// Reads into several buffers like readv(2). The default calls read() for each of them.
  virtual ssize_t readv(const iovec* vectors, int count);
  /// Ends both directions of the connection. The default calls shutdown(); the host refuses reads
  /// afterwards.
  virtual int shutdown_both();
  /// Passes the bytes accepted by writev() to the layer below or to the device. May block, until
  /// `until` at the latest; never if `until` has passed. Returns true if no accepted bytes are left
  /// in the carrier and none were lost by a failure. Runs no handler.
  virtual bool flush(ae::TimePoint /*until*/) noexcept { return true; }
  /// Called before abandon() when the loop is about to end: may block, until `until` at the latest,
  /// to send bytes that writev() has accepted, including after close(). Returns true if the carrier
  /// has nothing more to send, or can send nothing more. Called repeatedly, often with a time that
  /// has passed, because the connections of the loop take turns. Runs no handler.
  virtual bool drain(ae::TimePoint /*until*/) noexcept { return true; }
  /// The time for which a closed connection may continue to deliver data (option linger).
  virtual ae::Duration linger() const noexcept { return std::chrono::seconds(3); }
  /// The total time that all calls of drain() may take (option end-linger); zero: drain() is not
  /// called.
  virtual ae::Duration end_linger() const noexcept { return ae::Duration::zero(); }
  /// The time without any byte read or written after which the core fails the connection (option
  /// idle-timeout, conn/kit/idle_timeout.h); zero: no limit.
  virtual ae::Duration idle_timeout() const noexcept { return ae::Duration::zero(); }
  /// Called by a protocol above (such as TLS) that knows that the peer sends nothing more, so that
  /// close() need not wait for the peer.
  virtual void expect_no_more() noexcept {}
  /// Called by a protocol above (such as TLS) once it has a secret that only both ends know. From
  /// then on, whatever the carrier uses to recognize its peer must depend on this secret, too.
  /// `peer_has_it`: whether the peer certainly has the secret by now. If false, the peer has the
  /// secret once it has received everything that the protocol above has written so far, and the
  /// peer writes nothing before that.
  virtual void take_secret(std::span<const std::byte> /*secret*/, bool /*peer_has_it*/) noexcept {}
  /// Leaves the old loop, for the loop `to`; null: the new loop is not known yet. Not called in the
  /// states kConnecting and kAccepting, nor while a connect handler is due. Returns false with
  /// errno, or throws std::bad_alloc, without side effects. Needed for Capabilities::rebind.
  /// Afterwards loop() is `to`. While loop() is null, close() and abandon() are not called: a
  /// connection that is closed then ends in its carrier's destructor, which must act according to
  /// aborts(). On the new loop close() may be called before join(), and if memory runs out,
  /// abandon() is called instead of join().
  virtual bool leave(ae::EventLoop* to);
  /// Returns whether this connection can move to another loop although its type lacks
  /// Capabilities::rebind.
  virtual bool can_move() const noexcept { return false; }
  /// Returns a blocking descriptor, which the caller then owns, if the descriptor alone can carry
  /// both directions from now on: this carrier contains no bytes that were read or written but not
  /// passed on, and no option needs the loop. Afterwards only close() is called, which must not end
  /// the stream. Otherwise returns -1 without side effects.
  virtual int release_descriptor() noexcept { return -1; }
  /// Continues on the new loop. Called there after leave(), and followed by interest_changed().
  /// Must not throw. Returns false if the connection cannot continue; the core then fails the
  /// connection for lack of memory, unless the carrier has called fail().
  virtual bool join(ae::EventLoop& /*loop*/) { return true; }

  // The functions from here on are for carriers that give programs access to the carrier's own
  // memory. For other carriers the core copies through chunks of memory, which it borrows from the
  // loop's pool.

  /// Returns whether the carrier implements peek() and consume(), which show unread bytes in the
  /// memory where they arrived.
  virtual bool peeks_in_place() const noexcept { return false; }
  /// Shows unread bytes in `view`, as Connection::peek() does. Returns 1; 0 at end of stream; -1
  /// with errno. EMSGSIZE means that `together` bytes have arrived, but not in one piece.
  virtual ssize_t peek(std::size_t /*together*/, View& /*view*/) { return 0; }
  /// Forgets how many bytes peek() asked for, so that the read handler runs for any number of
  /// bytes.
  virtual void peek_anything() noexcept {}
  /// Discards the first `size` bytes that peek() showed, or all that it showed if there are fewer.
  /// Returns the number of bytes discarded.
  virtual std::size_t consume(std::size_t /*size*/) noexcept { return 0; }
  /// Returns whether the carrier implements reserve() and commit(). reserve() may still return an
  /// empty span with EOPNOTSUPP; the core then provides a buffer for this call.
  virtual bool reserves_in_place() const noexcept { return false; }
  /// Returns a buffer for output, like Connection::reserve().
  virtual std::span<std::byte> reserve(std::size_t /*size*/) { return {}; }
  /// Sends the first bytes of the buffer that reserve() returned, like Connection::commit().
  virtual void commit(std::size_t /*size*/) noexcept {}
  /// Returns whether send() may accept these bytes. False if it is certain to refuse them; they are
  /// then written with writev(), together with the data before and after them.
  virtual bool sends_in_place(const Outgoing& /*bytes*/) const noexcept { return true; }
  /// Sends bytes from the program's memory without copying them. If it takes all bytes, it calls
  /// references_done() when they are no longer needed. If it takes fewer, the rest is passed to the
  /// next call, before any other data; if the rest never comes because the connection ends, the
  /// segment ends with the bytes taken. Otherwise it returns -1: with EAGAIN if it takes none now
  /// (the carrier calls run_write_handler() when a retry is worthwhile, as for writev()), or with
  /// EOPNOTSUPP if the core must write all of them with writev().
  virtual ssize_t send(const Outgoing& bytes);

  /// The reason why the connection has ended or is about to end; it may be known before the
  /// connection fails. Empty: none is known.
  virtual const Failure& why_ended() const noexcept { return host().failure(); }

  /// Called when another connection has become the carrier's host, see CarrierHost::take_over().
  /// The default does nothing.
  virtual void host_changed() noexcept {}

 protected:
  using CarrierBase::CarrierBase;
};

}}  // namespace conn
