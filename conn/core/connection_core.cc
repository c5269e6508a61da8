// SPDX-License-Identifier: BSD-3-Clause
#include "conn/core/connection_core.h"

#include <cerrno>

#include "conn/connection_type.h"
#include "conn/core/connection_set.h"
#include "conn/core/in_place_state.h"
#include "conn/kit/probes.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

Failure loop_gone() noexcept {
  Failure failure{std::make_error_code(std::errc::operation_canceled), {}};
  try {
    failure.text = "the event loop is gone";
  } catch (const std::bad_alloc&) {
    // The text is short enough for the string's internal buffer, so that it needs no allocation.
    failure.text = "no event loop";
  }
  return failure;
}

}  // namespace

ConnectionCore::Rare& ConnectionCore::rare() {
  if (!rare_) rare_ = std::make_unique<Rare>();
  return *rare_;
}

void ConnectionCore::set_connect_handler(Handler done) {
  if (done)
    put(rare().on_connect, wanted_.connected, std::move(done));
  else if (rare_)
    put(rare_->on_connect, wanted_.connected);
}

// --- creating, closing and destroying a connection -----------------------------------------------

ConnectionCore::ConnectionCore(std::unique_ptr<Carrier> carrier, ae::EventLoop& loop)
    : ConnectionBase(std::move(carrier), loop), type_(carrier_->type()) {
  set_ = &ConnectionSet::of(loop);
  set_->add(*this);
  enter_counters(loop);
}

ConnectionCore::~ConnectionCore() {
  // The Carrier is destroyed first, because it may still read the memory that is released below.
  carrier_.reset();
  if (moves()) rare_->moving->connection = nullptr;
  if (in_place_ != nullptr) in_place_->end(std::make_error_code(std::errc::operation_canceled));
  leave_set();
}

void ConnectionCore::leave_set() noexcept {
  if (close_watch_) unqueue(*close_watch_);
  if (rare_ && rare_->path) unqueue(*rare_->path);
  if (rare_) rare_->idle.reset();
  unlink();
  if (served_ && set_ != nullptr) set_->leave_served();
  set_ = nullptr;
  leave_counters();
}

void ConnectionCore::drop_handlers() noexcept {
  wanted_.barrier = Barrier::kNo;
  wanted_.connected = false;
  if (rare_) rare_->on_connect.clear();
  if (rare_ && rare_->path) drop(*rare_->path);
  put(on_read_, wanted_.read);
  put(on_write_, wanted_.write);
}

void ConnectionCore::give_up() noexcept {
  // ending_ is set first, because destroying a handler may destroy the owner of this connection,
  // which then closes it.
  ending_ = Ending::kGivenUp;
  count_close();
  drop_handlers();
  close_watch_.reset();
  follow_idle(*this);
  reserved_ = 0;
  // abandon() is executing, and one of the functions that it calls has closed the connection.
  // abandon() destroys it.
  if (abandoned_ && loop_ != nullptr) return;
  if (aborts_) {
    if (in_place_ != nullptr) in_place_->drop(std::make_error_code(std::errc::operation_canceled));
  } else if (in_place_ != nullptr && events_wanted() && !inherited() && in_place_->begin_drain()) {
    return;
  }
  ending_ = Ending::kClosing;
  if (loop_ == nullptr) {
    delete this;  // no handler of this connection is executing, because it has no loop
  } else if (inherited()) {
    leave_to_parent();
  } else {
    carrier_->close();
  }
}

// Closes a connection that a child of fork() has inherited. Sends nothing and does not wait,
// because the parent process sends the data.
void ConnectionCore::leave_to_parent() noexcept {
  carrier_->abandon();
  release();
}

void ConnectionCore::released() noexcept {
  loop_->destroy_later(std::unique_ptr<ae::Deferred>(this));
}

void ConnectionCore::abandon() noexcept {
  if (ending_ != Ending::kReleased) carrier_->abandon();
  abandoned_ = true;
  leave_set();
  // The connection fails before the release functions passed to send() run, because these may use
  // it.
  if (!given_up()) fail(loop_gone());
  if (in_place_ != nullptr) in_place_->end(std::make_error_code(std::errc::operation_canceled));
  loop_ = nullptr;
  // The program no longer owns a connection that it has closed, so the connection destroys itself.
  if (ending_ != Ending::kReleased && given_up()) delete this;
}

void ConnectionCore::carrier_changed() noexcept {
  // The connection is added to the set again, because the set groups connections by their Carrier's
  // type, which has changed.
  if (listed()) {
    unlink();
    set_->add(*this);
  }
  follow_idle(*this);
  queue_close();
}

// Aborts the connection when a server stops (conn/stop.h). If the program still owns it, the
// connection fails, and the program's close() then acts like abort(). If the program has closed it
// already, it delivers nothing more, and the loop destroys it once none of its handlers is
// executing.
void ConnectionCore::cut(const Failure& why) noexcept {
  if (inherited() || ending_ == Ending::kReleased) return;
  aborts_ = true;
  if (closing()) {
    carrier_->abandon();
    return release();
  }
  // The program has closed the connection: in_place_ discards the pending output, and closes the
  // Carrier later, from the loop.
  if (given_up()) {
    if (in_place_ != nullptr) in_place_->drop(why.code);
    return;
  }
  try {
    fail(why);
  } catch (const std::bad_alloc&) {  // copying `why` needs memory
    fail(out_of_memory());
  }
  watch_or_fail();
}

std::string ConnectionCore::hand_over(ConnectionPtr connection, ConnectionBase& layer) {
  ConnectionCore& core = of(*connection);
  if (core.inherited()) throw Error("the connection below belongs to the parent process");
  if (core.state_ != State::kNone) core.clear_handlers();
  core.commit(0);
  std::string unread;
  if (InPlace* const in_place = core.in_place_; in_place != nullptr) {
    if (!in_place->flush() || in_place->output().lends())
      throw Error("the connection below has output that is still pending");
    unread.resize(in_place->read_ahead.unread());
    if (!unread.empty()) (void)in_place->read_ahead.read(unread.data(), unread.size());
  }
  if (core.origin() != nullptr) layer.set_origin(*core.origin());
  layer.become(core);
  (void)connection.release();
  core.release();
  return unread;
}

int ConnectionCore::release_descriptor(ConnectionPtr& connection) noexcept {
  ConnectionCore& core = of(*connection);
  if (core.state_ != State::kConnected || !core.events_wanted() || core.inherited()) return -1;
  if (core.reserved_ != 0) return -1;
  if (const InPlace* const held = core.in_place_; held != nullptr) {
    if (held->output().waits() || held->output().lends() || held->shutdown_due()) return -1;
    if (held->read_ahead.unread() != 0) return -1;
  }
  const int fd = core.carrier_->release_descriptor();
  if (fd >= 0) connection.reset();
  return fd;
}

void ConnectionCore::set_origin(Origin origin) {
  rare().origin = std::make_unique<const Origin>(std::move(origin));
}

// --- changes of the state ------------------------------------------------------------------------

void ConnectionCore::state_changed(State from) noexcept {
  count_state(from);
  if (!served_ && from == State::kNone && set_ != nullptr &&
      (state_ == State::kAccepting || state_ == State::kConnected)) {
    served_ = true;
    set_->enter_served();
  }
  switch (state_) {
    case State::kConnected: {
      const std::string_view name = type_.name();
      Connection* const connection = this;
      if (from == State::kConnecting)
        AECONN_PROBE(connect, id_, connection, name.data(), name.size());
      else
        AECONN_PROBE(accept, id_, connection, name.data(), name.size());
      break;
    }
    case State::kClosed:
      if (in_place_ != nullptr) in_place_->drop(std::make_error_code(std::errc::broken_pipe));
      break;
    case State::kError:
      if (in_place_ != nullptr) in_place_->drop(failure_.code);
      break;
    case State::kNone:
    case State::kConnecting:
    case State::kAccepting:
      break;
  }
  follow_idle(*this);
  queue_close();
}

// --- running the program's handlers --------------------------------------------------------------

CarrierHost::Alive ConnectionCore::run_connect_handler() {
  // The handler is taken out of its slot before it runs, so that it does not run again even if it
  // throws.
  wanted_.connected = false;
  Handler done;
  if (rare_) done = rare_->on_connect.take();
  if (rare_ && !rare_->origin && !rare_->moving && !rare_->path && !rare_->idle) rare_.reset();
  if (rare_ && rare_->path && take_waiting(*rare_->path)) path_changed();
  if (done) {
    Running running{running_};
    done(*this);
  }
  return closing() ? Alive::kGone : Alive::kYes;
}

CarrierHost::Alive ConnectionCore::run_write_handler() {
  if (in_place_ != nullptr) {
    const bool was_blocked = wanted_.blocked;
    if (!in_place_->has_room()) return closing() ? Alive::kGone : Alive::kYes;
    // Sending the pending output may have used up all the capacity that the event announced (for
    // example for a last TLS record that is kept back). The write handler then waits until the
    // Carrier signals again that it accepts data.
    if (was_blocked && state_ == State::kConnected) return Alive::kYes;
  }
  return run(on_write_, false);
}

/// Called after a read or write handler was replaced. Informs the Carrier and the InPlace object
/// (data read ahead, pending output), which run the handlers. If the Carrier cannot watch for the
/// event, removes the handler.
void ConnectionCore::handler_changed(Slot& slot, bool& flag) {
  if (events_wanted()) {
    try {
      carrier_->interest_changed();
    } catch (...) {
      put(slot, flag);  // removes the handler, which would never run without the Carrier's event
      throw;
    }
  }
  if (in_place_ != nullptr) in_place_->handler_changed();
}

// --- sending and shutting down -------------------------------------------------------------------

/// Passes output of earlier commit() and send() calls to the Carrier, to keep the order. Returns
/// whether write() may call the Carrier now; if not, sets errno.
bool ConnectionCore::may_send() noexcept {
  if (reserved_ != 0) {
    errno = EBUSY;
    return false;
  }
  if (in_place_ == nullptr) return true;
  if (in_place_->shutdown_due()) {
    errno = EPIPE;
    return false;
  }
  if (!in_place_->output().waits() || in_place_->flush()) return true;
  if (state_ != State::kConnected) {
    (void)refuse(ae::kWritable);
    return false;
  }
  refused_write();
  errno = EAGAIN;
  return false;
}

/// Ends the output for shutdown(), or with `both` for shutdown_both(). Output that the Carrier has
/// not accepted yet is sent first. Returns 0, or -1 with errno.
int ConnectionCore::end_output(bool both) {
  if (state_ == State::kClosed) return 0;
  if (state_ != State::kConnected || given_up()) {
    errno = ENOTCONN;
    return -1;
  }
  if (reserved_ != 0) commit(0);
  if (in_place_ != nullptr) {
    if (both) in_place_->read_ahead.end();
    if (!both && in_place_->shutdown_due()) return 0;
    if (in_place_->output().waits() && !in_place_->flush()) {
      if (state_ == State::kConnected) in_place_->shut_down_later();
      return 0;
    }
    if (state_ != State::kConnected) return 0;
  }
  return shut_carrier_down(both);
}

int ConnectionCore::shut_carrier_down(bool both) {
  const int result = both ? carrier_->shutdown_both() : carrier_->shutdown();
  output_ended_ = output_ended_ || result == 0;
  return result;
}

}}  // namespace conn
