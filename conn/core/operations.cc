// SPDX-License-Identifier: BSD-3-Clause
// The operations of conn::Connection. Each checks the state, and then uses the data that was read
// ahead, the pending output, or the Carrier. The operations for data in place are in
// operations_in_place.cc, the blocking ones in operations_blocking.cc.

#include "conn/connection.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <memory>
#include <utility>

#include "conn/connection_type.h"
#include "conn/core/close_watch.h"
#include "conn/core/connection_core.h"
#include "conn/core/connection_set.h"
#include "conn/core/counting.h"
#include "conn/core/in_place_state.h"
#include "conn/core/path_watch.h"
#include "conn/kit/errno_of.h"
#include "conn/kit/interruption.h"
#include "conn/kit/probes.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

/// Adds up the sizes of the vectors into `size`. Returns false with errno EINVAL if the vectors are
/// invalid.
bool total_of(const iovec* vectors, int count, std::size_t& size) noexcept {
  bool fit = count == 0 || (count > 0 && vectors != nullptr);
  for (int i = 0; fit && i < count; ++i) {
    size += std::min(vectors[i].iov_len, SIZE_MAX - size);
    fit = vectors[i].iov_len == 0 || vectors[i].iov_base != nullptr;
  }
  if (!fit) errno = EINVAL;
  return fit;
}

/// Returns whether readv() or writev() was called with a single valid vector, which read() or
/// write() can handle faster.
bool is_one_piece(const iovec* vectors, int count) noexcept {
  return count == 1 && vectors != nullptr && vectors->iov_base != nullptr;
}

ae::TimePoint deadline_after(ae::Duration timeout) noexcept {
  const ae::TimePoint now = std::chrono::steady_clock::now();
  if (timeout <= ae::Duration::zero()) return now;
  return timeout > ae::TimePoint::max() - now ? ae::TimePoint::max() : now + timeout;
}

/// Runs the connect handler of a connection that failed inside connect(), from the loop's list. The
/// handler itself owns this object, so that removing the handler also removes the object from the
/// list.
class RefusedAttempt final : public ReadyItem {
 public:
  static void report(ConnectionCore& connection, ReadyList& list) {
    if (!connection.connect_due()) return;
    auto item = std::make_shared<RefusedAttempt>(connection);
    list.push(*item);
    connection.set_connect_handler(
        [item = std::move(item), done = connection.rare_->on_connect.take()](Connection& failed) {
          done(failed);
        });
  }
  explicit RefusedAttempt(ConnectionCore& connection) noexcept : connection_(connection) {}

 private:
  std::size_t run_ready() override {
    (void)connection_.run_connect_handler();  // destroys this object
    return 1;
  }
  ConnectionCore& connection_;
};

}  // namespace

// --- connecting ----------------------------------------------------------------------------------

void Connection::connect(const Endpoint& to, Handler done) {
  ConnectionCore& c = ConnectionCore::of(*this);
  if (c.given_up() || c.loop_ == nullptr || c.state_ != State::kNone) return;
  c.move_to(State::kConnecting);
  try {
    c.set_connect_handler(std::move(done));
    try {
      c.type_.check(to);
      c.carrier_->connect(to);
    } catch (const Error& error) {
      c.fail(Failure(error));
      RefusedAttempt::report(c, c.set_->ready(*c.loop_));
    }
  } catch (const std::bad_alloc&) {
    c.set_connect_handler(nullptr);
    c.fail(out_of_memory());
    throw;
  }
}

bool Connection::connect_blocking(const Endpoint& to, ae::Duration timeout) {
  ConnectionCore& c = ConnectionCore::of(*this);
  if (c.given_up() || c.loop_ == nullptr || c.state_ != State::kNone) {
    switch (c.state_) {
      case State::kConnected:
        errno = EISCONN;
        break;
      case State::kConnecting:
      case State::kAccepting:
        errno = EALREADY;
        break;
      case State::kError:
        errno = errno_of(c.failure_);
        break;
      default:
        errno = ENOTCONN;
        break;
    }
    return false;
  }
  const Interruption::Scope scope;
  c.move_to(State::kConnecting);
  try {
    try {
      c.type_.check(to);
      return c.wait_to_connect(to, deadline_after(timeout));
    } catch (const Error& error) {
      c.fail(Failure(error));
    }
  } catch (const std::bad_alloc&) {
    c.fail(out_of_memory());
    throw;
  }
  errno = errno_of(c.failure_);
  return false;
}

// --- reading and writing -------------------------------------------------------------------------

// Connection::read() and write() handle only the usual case, for speed; read_in_full() and
// write_in_full() handle all cases.
namespace {

[[gnu::noinline]] ssize_t read_in_full(ConnectionCore& c, void* buffer, std::size_t size) {
  if (size == 0) return 0;
  if (c.in_place_ != nullptr && c.in_place_->read_ahead.ended()) [[unlikely]]
    return 0;
  const bool ahead = c.in_place_ != nullptr && c.in_place_->read_ahead.unread() != 0;
  if (c.state_ != State::kConnected && !ahead && !c.keeps_unread()) return c.refuse(ae::kReadable);
  if (buffer == nullptr) {
    errno = EINVAL;
    return -1;
  }
  const ssize_t n = ahead ? static_cast<ssize_t>(c.in_place_->read_ahead.read(buffer, size))
                          : c.carrier_->read(buffer, std::min<std::size_t>(size, SSIZE_MAX));
  return c.finish_read(n);
}

[[gnu::noinline]] ssize_t write_in_full(ConnectionCore& c, const void* buffer, std::size_t size) {
  if (size == 0) return 0;
  if (c.state_ != State::kConnected) return c.refuse(ae::kWritable);
  if (buffer == nullptr) {
    errno = EINVAL;
    return -1;
  }
  if ((c.in_place_ != nullptr || c.reserved_ != 0) && !c.may_send()) return -1;
  size = std::min<std::size_t>(size, SSIZE_MAX);
  return c.finish_write(c.carrier_->write(buffer, size), size);
}

/// Returns whether read() or write() can call the Carrier directly: the connection is established,
/// it has neither data read ahead nor pending output, and the arguments are valid.
bool is_usual(const ConnectionCore& c, const void* buffer, std::size_t size) noexcept {
  return c.state_ == State::kConnected && c.in_place_ == nullptr && buffer != nullptr &&
         size - 1 < SSIZE_MAX;
}

}  // namespace

ssize_t Connection::read(void* buffer, std::size_t size) {
  ConnectionCore& c = ConnectionCore::of(*this);
  if (!is_usual(c, buffer, size)) [[unlikely]]
    return read_in_full(c, buffer, size);
  return c.finish_read(c.carrier_->read(buffer, size));
}

ssize_t Connection::write(const void* buffer, std::size_t size) {
  ConnectionCore& c = ConnectionCore::of(*this);
  if (!is_usual(c, buffer, size) || c.reserved_ != 0) [[unlikely]]
    return write_in_full(c, buffer, size);
  return c.finish_write(c.carrier_->write(buffer, size), size);
}

ssize_t Connection::readv(const iovec* vectors, int count) {
  if (is_one_piece(vectors, count)) return read(vectors->iov_base, vectors->iov_len);
  ConnectionCore& c = ConnectionCore::of(*this);
  std::size_t size = 0;
  if (!total_of(vectors, count, size)) return -1;
  if (size == 0) return 0;
  ssize_t n = 0;
  if (c.in_place_ != nullptr && c.in_place_->read_ahead.ended()) return 0;
  if (c.in_place_ != nullptr && c.in_place_->read_ahead.unread() != 0) {
    for (int i = 0; i < count && c.in_place_ != nullptr && c.in_place_->read_ahead.unread() != 0;
         ++i)
      if (vectors[i].iov_len != 0)
        n += static_cast<ssize_t>(
            c.in_place_->read_ahead.read(vectors[i].iov_base, vectors[i].iov_len));
  } else if (c.state_ != State::kConnected && !c.keeps_unread()) {
    return c.refuse(ae::kReadable);
  } else {
    n = c.carrier_->readv(vectors, count);
  }
  return c.finish_read(n);
}

ssize_t Connection::writev(const iovec* vectors, int count) {
  if (is_one_piece(vectors, count)) return write(vectors->iov_base, vectors->iov_len);
  ConnectionCore& c = ConnectionCore::of(*this);
  std::size_t size = 0;
  if (!total_of(vectors, count, size)) return -1;
  if (size == 0) return 0;
  if (c.state_ != State::kConnected) return c.refuse(ae::kWritable);
  if ((c.in_place_ != nullptr || c.reserved_ != 0) && !c.may_send()) return -1;
  return c.finish_write(c.carrier_->writev(vectors, count), size);
}

void Connection::flush() noexcept {
  ConnectionCore& c = ConnectionCore::of(*this);
  if (c.given_up() || c.abandoned_ || c.loop_ == nullptr || c.moves()) return;
  AECONN_PROBE(flush, c.id_);
  if (c.in_place_ != nullptr && c.in_place_->output().waits()) {
    try {
      (void)c.in_place_->flush();
    } catch (const std::bad_alloc&) {
      // There is no memory to flush now. The event loop flushes again at the end of the iteration.
    }
  }
  if (c.state_ == State::kConnected || c.state_ == State::kClosed)
    (void)c.carrier_->flush(ae::TimePoint::min());
}

// --- handlers ------------------------------------------------------------------------------------

void Connection::set_read_handler(Handler handler) {
  ConnectionCore& c = ConnectionCore::of(*this);
  if (c.given_up()) return;
  if (handler) {
    c.carrier_->peek_anything();
    if (c.in_place_ != nullptr) c.in_place_->read_ahead.peek_anything();
  }
  // Destroyed last: it may own this connection, which ends with it if its loop has ended.
  const Handler before = c.on_read_.take();
  c.put(c.on_read_, c.wanted_.read, std::move(handler));
  c.handler_changed(c.on_read_, c.wanted_.read);
}

void Connection::set_write_handler(Handler handler, Barrier barrier) {
  ConnectionCore& c = ConnectionCore::of(*this);
  if (c.given_up()) return;
  c.wanted_.barrier = barrier;
  const Handler before = c.on_write_.take();  // destroyed last, like a read handler
  c.put(c.on_write_, c.wanted_.write, std::move(handler));
  c.handler_changed(c.on_write_, c.wanted_.write);
}

void Connection::set_close_handler(Handler handler, CloseOn when) {
  ConnectionCore& c = ConnectionCore::of(*this);
  if (c.given_up()) return;
  // Keeps the old handler alive until the function returns, because destroying what it owns may
  // call this function again.
  decltype(c.close_watch_) before;
  if (!handler) {
    before = std::move(c.close_watch_);
  } else {
    if (!c.close_watch_) {
      if (c.set_ != nullptr) (void)c.set_->ready(*c.loop_);
      c.close_watch_.reset(new CloseWatch(c));
    }
    c.close_watch_->handler.swap(handler);
    c.close_watch_->when = when;
    c.queue_close();
  }
  if (!c.events_wanted() || (c.close_watch_ && c.close_watch_->due())) return;
  try {
    c.carrier_->interest_changed();
  } catch (...) {
    // The close handler is removed, because it would never run without the Carrier's event.
    before = std::move(c.close_watch_);
    throw;
  }
}

void Connection::clear_handlers() noexcept {
  ConnectionCore& c = ConnectionCore::of(*this);
  if (c.given_up()) return;
  // Destroyed last: one of them may own this connection, which ends with it if its loop has ended.
  const auto before = std::move(c.close_watch_);
  const Handler read = c.on_read_.take(), write = c.on_write_.take();
  const Handler connected = c.rare_ ? c.rare_->on_connect.take() : nullptr;
  const Handler path = c.rare_ && c.rare_->path ? c.rare_->path->handler.take() : nullptr;
  c.drop_handlers();
  if (!c.events_wanted()) return;
  try {
    c.carrier_->interest_changed();
  } catch (const std::bad_alloc&) {
    // There is no memory to change the events that the Carrier watches for. At the next event no
    // handler is set, so none runs.
  }
  if (c.in_place_ != nullptr) c.in_place_->handler_changed();
}

bool Connection::has_read_handler() const noexcept {
  return ConnectionCore::of(*this).wanted_.read;
}

bool Connection::has_write_handler() const noexcept {
  return ConnectionCore::of(*this).wanted_.write;
}

// --- the end of the connection -------------------------------------------------------------------

int Connection::shutdown() {
  ConnectionCore& c = ConnectionCore::of(*this);
  if (!c.carrier_->type().capabilities().half_close) {
    errno = EOPNOTSUPP;
    return -1;
  }
  return c.end_output(false);
}

int Connection::shutdown_both() { return ConnectionCore::of(*this).end_output(true); }

void Connection::close() noexcept {
  ConnectionCore& c = ConnectionCore::of(*this);
  if (!c.given_up()) c.give_up();
}

void Connection::abort() noexcept {
  ConnectionCore& c = ConnectionCore::of(*this);
  if (c.given_up()) return;
  c.aborts_ = true;
  c.give_up();
}

// --- the program's private pointer ---------------------------------------------------------------

void* Connection::private_data() const noexcept { return ConnectionCore::of(*this).private_data_; }

void Connection::set_private_data(void* data) noexcept {
  ConnectionCore::of(*this).private_data_ = data;
}

}}  // namespace conn
