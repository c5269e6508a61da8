// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the author of a transport implements, and what the core gives him: a Carrier moves the bytes
// of one connection, its CarrierHost keeps the connection's state and runs the program's handlers.
// docs/add-a-transport.md walks through a whole transport.
//
// Everything here is for the thread of the connection's loop. Handlers of the program run only
// inside CarrierHost::run_*_handler(), which a carrier calls from the loop, never from within one
// of its own operations.

#include <sys/types.h>
#include <sys/uio.h>

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
#include "conn/state.h"

namespace conn { inline namespace AECONN_ABI {

class Carrier;
class ConnectionType;

/// How a connection came to its carrier, for people; see CarrierHost::set_origin().
struct Origin {
  std::vector<std::pair<std::string, std::string>> facts;  ///< info() begins with them
  std::string path;                                        ///< path() ends with it
};

/// The connection as its carrier sees it. The core implements it for connections of programs.
class AECONN_API CarrierHost : public ae::Deferred {
 public:
  /// Whether the connection still exists after a handler has run.
  enum class [[nodiscard]] Alive : bool{
      kGone,  ///< it was closed: return without accessing it
      kYes,   ///< it is still open
  };

  // --- what the carrier asks ---------------------------------------------------------------------
  State state() const noexcept { return state_; }  ///< current state
  /// Null after the end of the loop, and between two loops.
  ae::EventLoop* loop() const noexcept { return loop_; }
  const Failure& failure() const noexcept { return failure_; }  ///< the first one
  std::uint64_t id() const noexcept { return id_; }             ///< unique in the process
  /// Whether the connect handler has not run yet; no other handler may run before it.
  bool connect_due() const noexcept { return wanted_.connected; }
  bool wants_read() const noexcept { return wanted_.read; }  ///< a read handler is set
  /// Whether write readiness is of interest: to a write handler, or for output that waits.
  bool wants_write() const noexcept { return (wanted_.write && !wanted_.full) || wanted_.blocked; }
  /// Whether the write handler runs before the read handler.
  Barrier barrier() const noexcept { return wanted_.barrier; }
  /// Whether a close handler waits for peer_gone(): then watch for the end of the stream without
  /// reads.
  virtual bool wants_close() const noexcept = 0;
  /// Whether an established connection has failed and no read() has reported it yet: the read
  /// handler is due.
  bool error_unread() const noexcept { return lost_.established && !lost_.read_told; }
  /// As error_unread(), for write() and the write handler.
  bool error_unwritten() const noexcept { return lost_.established && !lost_.write_told; }
  /// Whether a handler is due to learn of the failure of an established connection.
  bool error_due() const noexcept {
    return (wants_read() && error_unread()) || (wants_write() && error_unwritten());
  }
  bool closing() const noexcept { return ending_ >= Ending::kClosing; }  ///< close() was called
  bool aborts() const noexcept { return aborts_; }                       ///< by abort()
  /// Whether this process is a child of fork() and the connection was created in its parent.
  bool inherited() const noexcept { return made_here_.inherited(); }

  // --- what the carrier reports ------------------------------------------------------------------
  /// The only way to change the state: kNone, then kConnecting (by the core) or kAccepting, then
  /// kConnected, then kClosed; or from kNone to kConnected. Runs no handler.
  void move_to(State next);
  /// Moves to kError for this reason, from any state but kClosed; the first failure is kept. Runs
  /// no handler, but makes them due.
  void fail(Failure failure);
  /// Call after each fail() if an established connection may still have data received before it:
  /// Carrier::read() is then called until it returns no_more_unread().
  void keep_unread() noexcept { lost_.unread_kept = lost_.established; }
  bool keeps_unread() const noexcept { return lost_.unread_kept; }  ///< see keep_unread()
  ssize_t no_more_unread() const noexcept;                          ///< -1 with the failure's errno
  /// The peer sends nothing more, whether or not everything has been read. Call it again when
  /// Carrier::why_ended() has changed. Runs no handler. The host itself detects failures, and the
  /// end of stream when a read returns it.
  void peer_gone() noexcept;
  /// Holds a place in the quota of the listener that accepted the connection, or of the address it
  /// connects to, until the connection is destroyed.
  void occupy(Quota::Place place) noexcept { place_ = std::move(place); }
  /// The last step of Carrier::close(): frees the connection with its carrier once no handler is on
  /// the stack.
  void release() noexcept;
  /// Calls Carrier::interest_changed() for callers that cannot repeat the call. If it runs out of
  /// memory, the connection fails, and a second call lets waiting handlers learn of the failure. If
  /// that fails as well, the next operation reports the failure.
  void watch_or_fail() noexcept;

  /// Continues with the carrier of `from`, a connection just established on the same loop that has
  /// had no reads and writes: the state becomes kConnected. `from` gets this host's carrier in
  /// exchange, and is to be closed.
  virtual void take_over(CarrierHost& from) noexcept = 0;
  virtual void set_origin(Origin origin) = 0;  ///< throws std::bad_alloc

  /// Runs the connect handler, at most once.
  virtual Alive run_connect_handler() = 0;
  /// Runs the read handler, if one is set. Call it when read() would not fail with EAGAIN.
  virtual Alive run_read_handler() = 0;
  /// Call it when the carrier accepts data: pending output is sent first, then the write handler
  /// runs.
  virtual Alive run_write_handler() = 0;
  /// The oldest `count` of the segments taken by Carrier::send() are no longer needed. May be
  /// called from anywhere, also after Carrier::close(); the program's releases run from the loop.
  /// All others are released when the connection is destroyed or abandoned, when the carrier can no
  /// longer read them.
  virtual void references_done(std::size_t count, std::error_code error) noexcept = 0;

 protected:
  /// Has no carrier and no loop yet.
  CarrierHost() noexcept;
  /// Becomes the host of `carrier`.
  CarrierHost(std::unique_ptr<Carrier> carrier, ae::EventLoop& loop) noexcept;
  ~CarrierHost() override;

  /// After each change of the state; `from` is the state before.
  virtual void state_changed(State from) noexcept = 0;
  /// After peer_gone(): the event of a close handler may have happened.
  virtual void peer_gone_changed() noexcept = 0;
  virtual void released() noexcept = 0;  ///< see release()

  /// The result of a read or a write that the state forbids. As with a socket, each direction
  /// reports the failure once and fails with ENOTCONN from then on.
  ssize_t refuse(ae::Mask direction) noexcept;
  int failed_errno() const noexcept;                    ///< the errno that best matches failure()
  void exchange_carriers(CarrierHost& other) noexcept;  ///< either may have none
  /// Whether the end of the peer's stream is known.
  bool gone() const noexcept { return peer_gone_ || lost_.established || state_ == State::kClosed; }

  /// How far close() has come. Goes one way, and may leave out steps.
  enum class Ending : std::uint8_t {
    kOpen,     ///< the program owns the connection
    kGivenUp,  ///< close() or abort() was called; output that waits above the carrier goes first
    kClosing,  ///< Carrier::close() was called: nothing waits above the carrier any more
    kReleased  ///< the loop destroys it once no handler is on the stack
  };
  struct Wanted {            // what events are wanted for
    bool connected = false;  // a connect handler is set
    bool read = false;       // a read handler is set
    bool write = false;      // a write handler is set
    bool blocked = false;    // output waits until the carrier accepts more
    bool full = false;       // send() and reserve() refuse more, whatever the carrier accepts
    Barrier barrier = Barrier::kNo;
  };
  struct Lost {                // the failure of an established connection
    bool established = false;  // there is one
    bool read_told = false;    // a read has returned it
    bool write_told = false;   // a write has returned it
    bool unread_kept = false;  // the carrier still returns data received before
  };

  std::unique_ptr<Carrier> carrier_;
  ae::EventLoop* loop_ = nullptr;
  State state_ = State::kNone;
  Ending ending_ = Ending::kOpen;
  Wanted wanted_;
  Lost lost_;
  bool aborts_ = false;     // abort() was called
  bool peer_gone_ = false;  // the peer's end of stream is known; it may still be unread
  const ae::MadeHere made_here_;
  std::uint64_t id_;
  Failure failure_;
  Quota::Place place_;
};

/// What every carrier has: its transport and its host.
class AECONN_API CarrierBase {
 public:
  CarrierBase(const CarrierBase&) = delete;
  CarrierBase& operator=(const CarrierBase&) = delete;
  virtual ~CarrierBase();
  // A carrier is created by make_connection() of conn/core/make_connection.h, with its connection.
  static void* operator new(std::size_t) = delete;
  static void operator delete(void* carrier) noexcept;
  const ConnectionType& type() const noexcept { return type_; }  ///< the transport
  CarrierHost& host() const noexcept { return *host_; }          ///< the connection above

 protected:
  /// `type` must outlive it. The host is set before any other function is called.
  explicit CarrierBase(const ConnectionType& type) noexcept : type_(type) {}

  using Alive = CarrierHost::Alive;

  // Short forms of the host's functions.
  State state() const noexcept { return host_->state(); }          ///< see CarrierHost
  ae::EventLoop* loop() const noexcept { return host_->loop(); }   ///< see CarrierHost
  bool closing() const noexcept { return host_->closing(); }       ///< see CarrierHost
  bool aborts() const noexcept { return host_->aborts(); }         ///< see CarrierHost
  bool inherited() const noexcept { return host_->inherited(); }   ///< see CarrierHost
  void move_to(State next) { host_->move_to(next); }               ///< see CarrierHost
  void fail(Failure failure) { host_->fail(std::move(failure)); }  ///< see CarrierHost

 private:
  friend class CarrierHost;
  CarrierHost* host_ = nullptr;
  const ConnectionType& type_;
};

/// What can be asked of a carrier, as conn::ConnectionFacts.
class AECONN_API CarrierFacts : public CarrierBase {
 public:
  virtual std::string local_address() const = 0;     ///< of this end, or ""
  virtual std::string peer_address() const = 0;      ///< of the other end, or ""
  virtual std::optional<bool> is_local() const = 0;  ///< whether the peer is on this host
  virtual int fd() const noexcept { return -1; }     ///< of this connection alone, or -1
  /// For a connection that is or was established. Empty: the name of the type and both addresses.
  virtual std::string path() const { return {}; }
  virtual std::vector<std::pair<std::string, std::string>> info() const { return {}; }  ///< details
  virtual std::string peer_certificate() const { return {}; }  ///< PEM, or ""
  virtual std::string peer_user() const { return {}; }         ///< by option peer-user, or ""

 protected:
  using CarrierBase::CarrierBase;
};

/// Carries the bytes of one connection; a transport derives from it. Each function implements the
/// operation of conn::Connection with the same name unless it says otherwise; the core has checked
/// the state and the arguments. Functions that may wait say so; no other function blocks.
class AECONN_API Carrier : public CarrierFacts {
 public:
  // --- what every carrier implements -------------------------------------------------------------
  /// Begins to connect. Leads to move_to(kConnected) or fail(), at once or later, and then, from
  /// the loop, to run_connect_handler(). A bad URL or option is a failure, too. Throws
  /// std::bad_alloc alone; the core then fails the connection.
  virtual void connect(const Endpoint& to) = 0;
  /// Connects and waits until `deadline` at the latest: returns in state kConnected or kError, or
  /// in kConnecting if the time is over. Runs no handler.
  virtual void connect_blocking(const Endpoint& to, ae::TimePoint deadline) = 0;
  /// As read(2). Returns 0 at end of stream, and moves to kClosed if shutdown() was called before.
  /// In kError it is called only after keep_unread().
  virtual ssize_t read(void* buffer, std::size_t size) = 0;
  /// As writev(2): may be short. Bytes are taken in order, or the connection fails: also fail() if
  /// the peer is found to accept no more. After shutdown() it returns -1 with EPIPE and does not
  /// fail.
  virtual ssize_t writev(const iovec* vectors, int count) = 0;
  /// Called after connect_due(), wants_read(), wants_write(), wants_close() or barrier() may have
  /// changed: watch what is wanted. In kError the handlers whose error_unread() or
  /// error_unwritten() holds are due. May throw std::bad_alloc.
  virtual void interest_changed() = 0;
  /// As shutdown(): 0, or -1 with errno. Moves to kClosed if read() has returned 0 before. May be
  /// called again.
  virtual int shutdown() = 0;
  /// Begins to close, in any state; the program's handlers are cleared. Leads to release(), at once
  /// or later,
  /// when bytes accepted by writev() are delivered or linger() is over. If aborts() is true,
  /// nothing more is delivered, and the peer should see an error if the transport can signal one.
  virtual void close() noexcept = 0;
  /// The loop is being destroyed: frees everything that depends on it, without waiting; the core
  /// fails the connection. Called before close() or between close() and release(), not after; facts
  /// may still be asked afterwards.
  virtual void abandon() noexcept = 0;
  /// Waits until read() (kReadable) or writev() (kWritable) would not fail with EAGAIN. Runs no
  /// handler. Returns false if the deadline came first, or Interruption::came() after EINTR.
  virtual bool wait_for(ae::Mask direction, ae::TimePoint deadline) = 0;

  // --- what it may implement: the defaults are right, and maybe slow -----------------------------
  /// The default calls read() for each vector.
  virtual ssize_t readv(const iovec* vectors, int count);
  /// The default calls shutdown(); the host refuses reads afterwards.
  virtual int shutdown_both();
  /// Hands the bytes accepted by writev() to the layer below or the device, waiting until `until`
  /// at the latest; it does not wait if `until` has passed. True if no bytes are left here. Runs no
  /// handler.
  virtual bool flush(ae::TimePoint /*until*/) noexcept { return true; }
  /// Called before abandon() when the loop is about to end: bytes accepted by writev() may still
  /// leave, until `until` at the latest, also after close(). Returns true if further waiting would
  /// make no difference. Called repeatedly, often with a time that has passed, as the connections
  /// take turns. Runs no handler.
  virtual bool drain(ae::TimePoint /*until*/) noexcept { return true; }
  /// How long close() may continue to deliver (option linger).
  virtual ae::Duration linger() const noexcept { return std::chrono::seconds(3); }
  /// Total time for all calls of drain() (option end-linger); zero: drain() is not called.
  virtual ae::Duration end_linger() const noexcept { return ae::Duration::zero(); }
  /// The protocol above knows that the peer sends nothing more: close() need not wait for the peer.
  virtual void expect_no_more() noexcept {}
  /// Leaves the old loop, for `to`, or for a loop that is not known yet if `to` is null. False with
  /// errno, or std::bad_alloc, without side effects. Needed for Capabilities::rebind.
  virtual bool leave(ae::EventLoop* to);
  /// On the new loop: interest_changed() follows. False if the connection failed.
  virtual bool join(ae::EventLoop& /*loop*/) { return true; }

  // In place, for carriers that expose their own memory. For the others, the core copies through
  // chunks, which it borrows from the loop's pool while they hold data.
  /// Whether peek() and consume() are implemented: unread bytes are shown where they arrived.
  virtual bool peeks_in_place() const noexcept { return false; }
  /// 1; 0 at end of stream; -1 with errno. EMSGSIZE: `together` bytes have arrived, but not in one
  /// piece.
  virtual ssize_t peek(std::size_t /*together*/, View& /*view*/) { return 0; }
  /// Cancels the minimum of peek(): the next read handler may run for fewer bytes.
  virtual void peek_anything() noexcept {}
  /// Returns the number of bytes consumed, at most what peek() showed.
  virtual std::size_t consume(std::size_t /*size*/) noexcept { return 0; }
  /// Whether reserve() and commit() are implemented. reserve() may return empty with EOPNOTSUPP:
  /// the core then lends a chunk this time.
  virtual bool reserves_in_place() const noexcept { return false; }
  virtual std::span<std::byte> reserve(std::size_t /*size*/) { return {}; }  ///< as reserve()
  virtual void commit(std::size_t /*size*/) noexcept {}                      ///< as commit()
  /// Whether send() may accept these bytes. False if it is certain to refuse them; they are then
  /// written together with the data before and after them.
  virtual bool sends_in_place(const Outgoing& /*bytes*/) const noexcept { return true; }
  /// Takes all bytes, and calls references_done() when they are no longer needed; or takes fewer,
  /// and the rest comes with the next call, before anything else; or returns -1: EAGAIN, not now
  /// (handlers are called when a retry is worthwhile, as for writev()); EOPNOTSUPP, the core must
  /// write all of them with writev(). If the rest never comes because the connection ends, the
  /// segment ends there.
  virtual ssize_t send(const Outgoing& bytes);

  /// The reason of the end as far as it is known; may be known before the connection fails.
  virtual const Failure& why_ended() const noexcept { return host().failure(); }

  /// The carrier has another host from now on: see CarrierHost::take_over().
  virtual void host_changed() noexcept {}

 protected:
  using CarrierFacts::CarrierFacts;
};

}}  // namespace conn
