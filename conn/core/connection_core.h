// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// ConnectionCore: the part of a connection that is the same for all transports: the program's
// handlers, closing, data that was read ahead, output that the Carrier has not accepted yet, and
// the connection's entry in the loop's ConnectionSet. The sources of this folder implement the
// operations of conn::Connection on it; a transport only creates it, with its Carrier.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "ae/core/handler_slot.h"
#include "ae/event_loop.h"
#include "conn/connection.h"
#include "conn/core/connection_base.h"
#include "conn/core/set_entry.h"
#include "conn/spi/carrier.h"

namespace conn { inline namespace AECONN_ABI {

class CloseWatch;
// Calls watch.unqueue(), for code that sees only the declaration of class CloseWatch.
void unqueue(CloseWatch& watch) noexcept;
struct DropCloseWatch {
  void operator()(CloseWatch* watch) const noexcept;
};
class PathWatch;
void unqueue(PathWatch& watch) noexcept;
void drop(PathWatch& watch) noexcept;  // calls watch.drop(): removes the path handler
bool take_waiting(PathWatch& watch) noexcept;
struct DropPathWatch {
  void operator()(PathWatch* watch) const noexcept;
};
class ConnectionCore;
class IdleWatch;
// Calls IdleWatch::follow(connection): starts or stops watching for option idle-timeout.
void follow_idle(ConnectionCore& connection) noexcept;
struct DropIdleWatch {
  void operator()(IdleWatch* watch) const noexcept;
};
class ConnectionSet;
class InPlace;

/// Implements Connection, the class that programs use. To be used on the thread of its loop.
class AECONN_API ConnectionCore final : public Connection, public ConnectionBase, public SetEntry {
 public:
  /// Creates a connection in state kNone and adds it to the loop's ConnectionSet. Throws
  /// std::bad_alloc.
  ConnectionCore(std::unique_ptr<Carrier> carrier, ae::EventLoop& loop);
  ~ConnectionCore() override;

  /// Returns the ConnectionCore that implements `connection`; every Connection is one.
  static ConnectionCore& of(Connection& connection) noexcept {
    return static_cast<ConnectionCore&>(connection);
  }
  static const ConnectionCore& of(const ConnectionFacts& connection) noexcept {
    return static_cast<const ConnectionCore&>(connection);
  }
  /// Frees this object's part of the memory that it shares with its Carrier (ConnectionBlock).
  static void operator delete(void* core) noexcept;
  /// Returns the Carrier that carries this connection's bytes now.
  Carrier& carrier() const noexcept { return *carrier_; }
  /// Sets the handler that runs when the connection is established or has failed. For a layer (such
  /// as TLS) that is set up on another connection. Throws std::bad_alloc.
  void set_connect_handler(Handler done);
  /// Moves the connection to the loop `to` like rebind(); if `to` is null, detaches it like
  /// leave(). Returns false with errno.
  bool move(ae::EventLoop* to);
  /// Moves everything from `connection` to `layer` (ConnectionBase::become()), and destroys the
  /// connection with its handlers. Returns the bytes that were read ahead. Throws Error if output
  /// is still pending, or std::bad_alloc; the connection is then closed.
  static std::string hand_over(ConnectionPtr connection, ConnectionBase& layer);

  /// Takes the descriptor out of an established connection, see Carrier::release_descriptor(). On
  /// success the connection is closed and its handlers are removed. Otherwise returns -1, and
  /// changes nothing.
  static int release_descriptor(ConnectionPtr& connection) noexcept;

  Alive run_connect_handler() override;
  Alive run_read_handler() override { return run(on_read_, true); }
  Alive run_write_handler() override;
  void references_done(std::size_t count, std::error_code error) noexcept override;
  void set_origin(Origin origin) override;
  bool wants_close() const noexcept override;
  void path_changed() noexcept override;

  // --- for the sources of this folder ------------------------------------------------------------
  using Slot = ae::HandlerSlot<void(Connection&)>;
  /// Shared by a connection that moves to another loop and the function that is posted to that loop
  /// to complete the move. It outlives a connection that is closed before the function runs, or
  /// that cannot leave its loop. The function may run immediately, on the other loop's thread;
  /// `leaving` makes it wait until the connection has left its old loop.
  struct Moving {
    ae::Mutex leaving;
    // The connection to move; null: it did not leave its old loop, was closed, or has arrived.
    ConnectionCore* connection = nullptr;
  };
  struct Rare {       // the members that an established connection hardly ever needs
    Slot on_connect;  // handler passed to connect(); empty once it has run
    // How the connection got its present Carrier; null: it still has its first Carrier.
    std::unique_ptr<const Origin> origin;
    // Shared with the posted function that moves the connection to another loop; null: it does not
    // move.
    std::shared_ptr<Moving> moving;
    std::unique_ptr<PathWatch, DropPathWatch> path;  // null unless a path handler was set
    std::unique_ptr<IdleWatch, DropIdleWatch> idle;  // null without option idle-timeout
  };
  struct Running {  // counts a handler of this connection as executing while it exists
    explicit Running(std::uint8_t& count) : depth(count) { ++depth; }
    ~Running() { --depth; }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    std::uint8_t& depth;
  };

  using CarrierHost::aborts_;
  using CarrierHost::carrier_;
  using CarrierHost::Ending;
  using CarrierHost::ending_;
  using CarrierHost::failure_;
  using CarrierHost::gone;
  using CarrierHost::id_;
  using CarrierHost::loop_;
  using CarrierHost::lost_;
  using CarrierHost::refuse;
  using CarrierHost::state_;
  using CarrierHost::wanted_;
  using ConnectionBase::bytes_read_;
  using ConnectionBase::bytes_written_;
  using ConnectionBase::count_read;
  using ConnectionBase::count_written;
  using ConnectionBase::finish_read;
  using ConnectionBase::finish_write;
  using ConnectionBase::refused_write;
  using ConnectionBase::wait_to_connect;

  /// Stores `handler` in `slot`, replacing the previous handler. `flag` is the member of wanted_
  /// (the events that the Carrier must watch for) that says whether this slot has a handler.
  void put(Slot& slot, bool& flag, Handler handler = nullptr) {
    flag = static_cast<bool>(handler);
    slot.set(std::move(handler));
  }
  [[gnu::always_inline]] Alive run(Slot& slot, bool reads) {
    Running running{running_};
    run_watched(
        reads, [&]() __attribute__((always_inline)) { slot.run(*this); });
    return closing() ? Alive::kGone : Alive::kYes;
  }
  void drop_handlers() noexcept;
  void handler_changed(Slot& slot, bool& flag);
  bool given_up() const noexcept { return ending_ != Ending::kOpen; }
  /// Returns whether the Carrier must be informed when the events that the connection waits for
  /// have changed.
  bool events_wanted() const noexcept {
    return !closing() && !abandoned_ && loop_ != nullptr && !moves();
  }

  bool moves() const noexcept { return rare_ != nullptr && rare_->moving != nullptr; }
  Rare& rare();  ///< the rarely needed members, created at the first call; throws std::bad_alloc

  void give_up() noexcept;
  void leave_to_parent() noexcept;
  void abandon() noexcept;
  void leave_set() noexcept;
  void arrive(ae::EventLoop& loop) noexcept;
  void cut(const Failure& why) noexcept;
  void queue_close() noexcept;

  bool may_send() noexcept;
  int end_output(bool both);
  int shut_carrier_down(bool both);
  InPlace* borrow() noexcept;

  const ConnectionType& type_;  // the type that the program used to create the connection
  // The ConnectionSet of the loop; null while the connection moves from one loop to another, and
  // after the loop has ended.
  ConnectionSet* set_;
  InPlace* in_place_ = nullptr;  // null unless data is read ahead or in-place output is pending
  std::unique_ptr<CloseWatch, DropCloseWatch> close_watch_;  // null unless a close handler is set
  Slot on_read_, on_write_;
  std::unique_ptr<Rare> rare_;
  std::uint8_t running_ = 0;  // number of this connection's handlers that are executing
  bool reads_fill_ = false;
  bool abandoned_ = false;  // whether the loop has ended, or is about to end
  bool served_ = false;     // whether the peer opened this connection, see ConnectionSet::served()
  bool drains_ = false;     // whether ConnectionSet::drain() waits for this connection's output
  bool output_ended_ = false;  // whether the Carrier has been shut down
  // Size of the buffer that reserve() returned; 0: no buffer is reserved.
  std::size_t reserved_ = 0;
  void* private_data_ = nullptr;

 private:
  void state_changed(State from) noexcept override;
  void peer_gone_changed() noexcept override { queue_close(); }
  void released() noexcept override;
  void carrier_changed() noexcept override;
  const Origin* origin() const noexcept override { return rare_ ? rare_->origin.get() : nullptr; }
};

}}  // namespace conn
