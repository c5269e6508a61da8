// SPDX-License-Identifier: BSD-3-Clause
#include "conn/connection.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <climits>
#include <mutex>

#include "ae/core/fork.h"
#include "conn/connection_type.h"
#include "conn/core/close_watch.h"
#include "conn/core/connection_set.h"
#include "conn/core/in_place_state.h"
#include "conn/kit/interruption.h"
#include "conn/kit/probes.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

std::uint64_t next_id() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

/// The state transitions that exist. kClosed and kError are final.
constexpr bool allowed(State from, State to) noexcept {
  switch (from) {
    case State::kNone:
      return to == State::kConnecting || to == State::kAccepting || to == State::kConnected ||
             to == State::kError;
    case State::kConnecting:
    case State::kAccepting:
      return to == State::kConnected || to == State::kError;
    case State::kConnected:
      return to == State::kClosed || to == State::kError;
    case State::kClosed:
    case State::kError:
      return false;
  }
  return false;
}

/// The errno that best matches `code`; codes of other categories (verbs, resolver) are mapped by
/// their default condition.
int errno_of(const std::error_code& code) noexcept {
  if (code.category() == std::generic_category() || code.category() == std::system_category()) {
    return code.value();
  }
  const std::error_condition condition = code.default_error_condition();
  return condition.category() == std::generic_category() ? condition.value() : EIO;
}

/// Sums up the sizes of the vectors. False with errno EINVAL if they are invalid.
bool total_of(const iovec* vectors, int count, std::size_t& size) noexcept {
  bool fit = count == 0 || (count > 0 && vectors != nullptr);
  for (int i = 0; fit && i < count; ++i) {
    size += std::min(vectors[i].iov_len, SIZE_MAX - size);
    fit = vectors[i].iov_len == 0 || vectors[i].iov_base != nullptr;
  }
  if (!fit) errno = EINVAL;
  return fit;
}

Failure loop_gone() noexcept {
  Failure failure{std::make_error_code(std::errc::operation_canceled), {}};
  try {
    failure.text = "the event loop is gone";
  } catch (const std::bad_alloc&) {
    failure.text = "no event loop";  // short enough for the string's internal buffer
  }
  return failure;
}

ae::TimePoint deadline_after(ae::Duration timeout) noexcept {
  const ae::TimePoint now = std::chrono::steady_clock::now();
  if (timeout <= ae::Duration::zero()) return now;
  return timeout > ae::TimePoint::max() - now ? ae::TimePoint::max() : now + timeout;
}

}  // namespace

std::string_view to_string(State state) noexcept {
  switch (state) {
    case State::kNone:
      return "none";
    case State::kConnecting:
      return "connecting";
    case State::kAccepting:
      return "accepting";
    case State::kConnected:
      return "connected";
    case State::kClosed:
      return "closed";
    case State::kError:
      return "error";
  }
  return "?";
}

/// State of the post that moves a connection to another loop. It outlives a connection that is
/// closed before the post runs, or that never leaves. The lock blocks the other thread, where the
/// post may run immediately, until the connection has left its old loop.
struct Connection::RebindState {
  ae::Mutex leaving;
  Connection* connection = nullptr;  // null: the connection does not arrive, or has arrived
};

// --- birth and death -----------------------------------------------------------------------------

Connection::Connection(const ConnectionType& type, ae::EventLoop& loop)
    : type_(type), loop_(&loop), id_(next_id()) {
  set_ = &ConnectionSet::of(loop);
  set_->add(*this);
  counters_ = &set_->counters(type);
  ++counters_->open;
}

Connection::~Connection() {
  if (rebind_state_) rebind_state_->connection = nullptr;
  if (in_place_ != nullptr) in_place_->end(std::make_error_code(std::errc::operation_canceled));
  leave_set();
}

void Connection::leave_set() noexcept {
  if (close_watch_) close_watch_->unqueue();
  if (set_link_ != nullptr) {
    *set_link_ = set_next_;
    if (set_next_ != nullptr) set_next_->set_link_ = set_link_;
    set_link_ = nullptr;
    set_next_ = nullptr;
  }
  set_ = nullptr;
  if (counters_ != nullptr) {
    --counters_->open;
    counters_ = nullptr;
  }
}

void Connection::close() noexcept {
  if (!given_up_) give_up();
}

void Connection::abort() noexcept {
  if (given_up_) return;
  aborts_ = true;
  give_up();
}

void Connection::give_up() noexcept {
  given_up_ = true;  // first: destroying a handler may destroy the owner of this connection
  if (counters_ != nullptr) ++counters_->closed;
  AECONN_PROBE(close, id_, bytes_read_, bytes_written_, failure_.code.value());
  on_connect_.clear();
  on_read_.clear();
  on_write_.clear();
  close_watch_.reset();
  reserved_ = 0;
  if (abandoned_ && loop_ != nullptr) return;  // inside abandon(), which completes the end
  if (aborts_) {
    if (in_place_ != nullptr) in_place_->drop(std::make_error_code(std::errc::operation_canceled));
  } else if (in_place_ != nullptr && events_wanted() && !inherited() && in_place_->begin_drain()) {
    return;
  }
  closing_ = true;
  if (loop_ == nullptr) {
    delete this;  // without a loop, no handler of this connection is on the stack
  } else if (made_here_.inherited()) {
    leave_to_parent();
  } else {
    do_close();
  }
}

// In a child of fork(), closing an inherited connection sends nothing and does not wait.
void Connection::leave_to_parent() noexcept {
  do_abandon();
  release();
}

bool Connection::inherited() const noexcept { return made_here_.inherited(); }

void Connection::release() noexcept {
  if (released_) return;
  released_ = true;
  loop_->destroy_later(std::unique_ptr<ae::Deferred>(this));
}

void Connection::abandon() noexcept {
  if (!released_) do_abandon();
  abandoned_ = true;
  leave_set();
  if (!released_ && !given_up_) fail(loop_gone());  // before releases run, which may send and close
  if (in_place_ != nullptr) in_place_->end(std::make_error_code(std::errc::operation_canceled));
  loop_ = nullptr;
  if (!released_ && given_up_) delete this;  // it has no other owner
}

// --- states --------------------------------------------------------------------------------------

void Connection::move_to(State next) {
  assert(allowed(state_, next));
  if (next == State::kConnecting || next == State::kAccepting)
    began_ = std::chrono::steady_clock::now();
  if (next == State::kConnected) {
    const bool ours = state_ == State::kConnecting;
    if (counters_ != nullptr) {
      ++(ours ? counters_->connected : counters_->accepted);
      if (state_ != State::kNone)
        (ours ? counters_->connect_time : counters_->accept_time)
            .add(std::chrono::steady_clock::now() - began_);
    }
    const std::string_view name = type_.name();
    if (ours)
      AECONN_PROBE(connect, id_, this, name.data(), name.size());
    else
      AECONN_PROBE(accept, id_, this, name.data(), name.size());
  }
  state_ = next;
  if (next == State::kClosed && in_place_ != nullptr)
    in_place_->drop(std::make_error_code(std::errc::broken_pipe));
  queue_close();
}

void Connection::fail(Failure failure) {
  assert(failure);
  if (state_ == State::kError || state_ == State::kClosed) return;  // a consequence of the first
  failure_ = std::move(failure);
  failure_.text = printable(std::move(failure_.text));
  died_ = state_ == State::kConnected;
  if (state_ == State::kConnecting && counters_ != nullptr)
    ++counters_->not_connected[static_cast<std::size_t>(kind_of(failure_.code))];
  move_to(State::kError);
  if (counters_ != nullptr) ++counters_->failed;
  if (in_place_ != nullptr) in_place_->drop(failure_.code);
  queue_close();
}

// --- connecting ----------------------------------------------------------------------------------

void Connection::connect(const Endpoint& to, Handler done) {
  if (given_up_ || loop_ == nullptr || state_ != State::kNone) return;
  on_connect_.set(std::move(done));
  move_to(State::kConnecting);
  try {
    do_connect(to);
  } catch (const std::bad_alloc&) {
    on_connect_.clear();
    fail(out_of_memory());
    throw;
  }
}

bool Connection::connect_blocking(const Endpoint& to, ae::Duration timeout) {
  if (given_up_ || loop_ == nullptr || state_ != State::kNone) {
    switch (state_) {
      case State::kConnected:
        errno = EISCONN;
        break;
      case State::kConnecting:
      case State::kAccepting:
        errno = EALREADY;
        break;
      case State::kError:
        errno = errno_of(failure_.code);
        break;
      default:
        errno = ENOTCONN;
        break;
    }
    return false;
  }
  const Interruption::Scope scope;
  move_to(State::kConnecting);
  try {
    do_connect_blocking(to, deadline_after(timeout));
  } catch (const std::bad_alloc&) {
    fail(out_of_memory());
    throw;
  }
  const int why = Interruption::ends() ? EINTR : ETIMEDOUT;
  if (state_ == State::kConnecting) fail(errno_failure(why, "connect to " + to.to_string()));
  if (state_ == State::kConnected) return true;
  errno = why == EINTR ? EINTR : errno_of(failure_.code);
  return false;
}

Connection::Alive Connection::dispatch_connect() {
  // The handler is taken out before it runs, so that it does not run again even if it throws.
  const Handler done = on_connect_.take();
  if (done) {
    Running running{running_};
    done(*this);
  }
  return closing_ ? Alive::kGone : Alive::kYes;
}

Connection::Alive Connection::dispatch_write() {
  if (in_place_ != nullptr) {
    const bool was_blocked = output_blocked_;
    if (!in_place_->has_room()) return closing_ ? Alive::kGone : Alive::kYes;
    // The pending output may have used all the capacity that the event announced, for example for a
    // last TLS record that is kept back: wait until the transport signals again that it accepts
    // data.
    if (was_blocked && state_ == State::kConnected) return Alive::kYes;
  }
  return dispatch(on_write_);
}

void Connection::look_at_run(bool reads, std::uint64_t before) noexcept {
  const unsigned row = vain_.look(reads, (reads ? bytes_read_ : bytes_written_) != before);
  if (row > Vain::longest_row.load(std::memory_order_relaxed))
    Vain::longest_row.store(row, std::memory_order_relaxed);
}

bool Connection::has_write_handler() const noexcept { return static_cast<bool>(on_write_); }

// --- facts ---------------------------------------------------------------------------------------

std::string Connection::path() const {
  const bool stood = state_ == State::kConnected || state_ == State::kClosed || died_;
  return stood ? printable(do_path()) : std::string();
}

std::string Connection::do_path() const {
  std::string line(type_.name());
  const std::string here = local_address(), there = peer_address();
  if (!here.empty()) line.append(" ").append(here);
  // A Unix socket has one name for both ends.
  if (there.empty() || there == here) return line;
  if (!here.empty()) line += " >";
  return line.append(" ").append(there);
}

// --- data ----------------------------------------------------------------------------------------

ssize_t Connection::read(void* buffer, std::size_t size) {
  if (size == 0) return 0;
  if (in_place_ != nullptr && in_place_->reading_ended()) [[unlikely]]
    return 0;
  const bool ahead = in_place_ != nullptr && in_place_->unread() != 0;
  if (state_ != State::kConnected && !ahead && !keeps_unread_) return refuse(ae::kReadable);
  if (buffer == nullptr) {
    errno = EINVAL;
    return -1;
  }
  const ssize_t n = ahead ? static_cast<ssize_t>(in_place_->read(buffer, size))
                          : do_read(buffer, std::min<std::size_t>(size, SSIZE_MAX));
  finish_read(n);
  return n;
}

ssize_t Connection::readv(const iovec* vectors, int count) {
  std::size_t size = 0;
  if (!total_of(vectors, count, size)) return -1;
  if (size == 0) return 0;
  ssize_t n = 0;
  if (in_place_ != nullptr && in_place_->reading_ended()) return 0;
  if (in_place_ != nullptr && in_place_->unread() != 0) {
    for (int i = 0; i < count && in_place_ != nullptr && in_place_->unread() != 0; ++i)
      if (vectors[i].iov_len != 0)
        n += static_cast<ssize_t>(in_place_->read(vectors[i].iov_base, vectors[i].iov_len));
  } else if (state_ != State::kConnected && !keeps_unread_) {
    return refuse(ae::kReadable);
  } else {
    n = do_readv(vectors, count);
  }
  finish_read(n);
  return n;
}

ssize_t Connection::do_readv(const iovec* vectors, int count) {
  ssize_t all = 0;
  for (int i = 0; i < count; ++i) {
    if (vectors[i].iov_len == 0) continue;
    const ssize_t n = do_read(vectors[i].iov_base, vectors[i].iov_len);
    if (n <= 0) return all != 0 ? all : n;  // the next call reports it
    all += n;
    if (static_cast<std::size_t>(n) < vectors[i].iov_len) break;
  }
  return all;
}

void Connection::finish_read(ssize_t n) noexcept {
  if (n > 0) {
    count_read(static_cast<std::size_t>(n));
  } else if (n == 0) {
    peer_gone();
  } else if (state_ == State::kError) {
    keeps_unread_ = false;
    read_told_ = true;
  } else if (errno == EAGAIN) {
    vain_.refused(true);
  }
}

ssize_t Connection::no_more_unread() const noexcept {
  errno = errno_of(failure_.code);
  return -1;
}

void Connection::count_read(std::size_t size) noexcept {
  AECONN_PROBE(read, id_, size);
  bytes_read_ += size;
  if (counters_ != nullptr) counters_->bytes_read += size;
}

void Connection::count_written(std::size_t size) noexcept {
  AECONN_PROBE(write, id_, size);
  bytes_written_ += size;
  if (counters_ != nullptr) counters_->bytes_written += size;
}

/// Whether write() may call the transport: data committed or sent before goes first.
bool Connection::may_send() noexcept {
  if (reserved_ != 0) {
    errno = EBUSY;
    return false;
  }
  if (in_place_ == nullptr) return true;
  if (in_place_->shutdown_due()) {
    errno = EPIPE;
    return false;
  }
  if (!in_place_->waits() || in_place_->flush()) return true;
  if (state_ != State::kConnected) {
    (void)refuse(ae::kWritable);
    return false;
  }
  refused_write();
  errno = EAGAIN;
  return false;
}

/// Counts a write that failed with EAGAIN.
void Connection::refused_write() noexcept {
  vain_.refused(false);
  if (counters_ != nullptr) ++counters_->short_writes;
}

ssize_t Connection::write(const void* buffer, std::size_t size) {
  if (size == 0) return 0;
  if (state_ != State::kConnected) return refuse(ae::kWritable);
  if (buffer == nullptr) {
    errno = EINVAL;
    return -1;
  }
  if ((in_place_ != nullptr || reserved_ != 0) && !may_send()) return -1;
  const iovec vector{const_cast<void*>(buffer), std::min<std::size_t>(size, SSIZE_MAX)};
  return finish_write(do_writev(&vector, 1), vector.iov_len);
}

ssize_t Connection::writev(const iovec* vectors, int count) {
  std::size_t size = 0;
  if (!total_of(vectors, count, size)) return -1;
  if (size == 0) return 0;
  if (state_ != State::kConnected) return refuse(ae::kWritable);
  if ((in_place_ != nullptr || reserved_ != 0) && !may_send()) return -1;
  return finish_write(do_writev(vectors, count), size);
}

ssize_t Connection::finish_write(ssize_t n, std::size_t asked) noexcept {
  if (n > 0) {
    count_written(static_cast<std::size_t>(n));
    if (counters_ != nullptr && static_cast<std::size_t>(n) < asked) ++counters_->short_writes;
  } else if (n < 0 && state_ == State::kError) {
    write_told_ = true;
  } else if (n < 0 && errno == EAGAIN) {
    refused_write();
  }
  return n;
}

/// The result of an operation that the state forbids. As with a socket, each direction reports the
/// failure once and fails with ENOTCONN from then on.
ssize_t Connection::refuse(ae::Mask direction) noexcept {
  const bool reading = direction == ae::kReadable;
  if (state_ == State::kClosed) {
    if (reading) return 0;
    errno = EPIPE;
    return -1;
  }
  bool& told = reading ? read_told_ : write_told_;
  errno = state_ == State::kError && !told ? errno_of(failure_.code) : ENOTCONN;
  if (state_ == State::kError) told = true;
  return -1;
}

void Connection::flush() noexcept {
  if (given_up_ || abandoned_ || loop_ == nullptr || rebind_state_) return;
  AECONN_PROBE(flush, id_);
  if (in_place_ != nullptr && in_place_->waits()) {
    try {
      (void)in_place_->flush();
    } catch (const std::bad_alloc&) {  // the loop tries again
    }
  }
  if (state_ == State::kConnected || state_ == State::kClosed) (void)do_flush(ae::TimePoint::min());
}

int Connection::shutdown() {
  if (!type_.capabilities().half_close) {
    errno = EOPNOTSUPP;
    return -1;
  }
  if (state_ == State::kClosed) return 0;
  if (state_ != State::kConnected || given_up_) {
    errno = ENOTCONN;
    return -1;
  }
  if (reserved_ != 0) commit(0);
  if (in_place_ != nullptr) {
    if (in_place_->shutdown_due()) return 0;
    if (in_place_->waits() && !in_place_->flush()) {
      if (state_ == State::kConnected) in_place_->shut_down_later();
      return 0;
    }
    if (state_ != State::kConnected) return 0;
  }
  return do_shutdown();
}

int Connection::shutdown_both() {
  if (state_ == State::kClosed) return 0;
  if (state_ != State::kConnected || given_up_) {
    errno = ENOTCONN;
    return -1;
  }
  if (reserved_ != 0) commit(0);
  if (in_place_ != nullptr) {
    in_place_->end_reading();
    if (in_place_->waits() && !in_place_->flush()) {
      if (state_ == State::kConnected) in_place_->shut_down_later();
      return 0;
    }
    if (state_ != State::kConnected) return 0;
  }
  return do_shutdown_both();
}

int Connection::do_shutdown_both() {
  if (do_shutdown() != 0) return -1;
  if (state_ == State::kConnected) move_to(State::kClosed);
  if (events_wanted()) handlers_changed();
  return 0;
}

/// As do_drain(), for output pending in the base first.
bool Connection::drain(ae::TimePoint until) noexcept {
  if (in_place_ != nullptr && in_place_->waits() && !closing_) {
    try {
      while (!in_place_->flush()) {
        if (std::chrono::steady_clock::now() >= until) return false;
        wait_for(ae::kWritable, until);
      }
    } catch (const std::exception&) {  // no memory to wait
    }
  }
  return do_drain(until);
}

// --- handlers ------------------------------------------------------------------------------------

void Connection::set_read_handler(Handler handler) {
  if (given_up_) return;
  if (handler) {
    do_peek_anything();
    if (in_place_ != nullptr) in_place_->peek_anything();
  }
  on_read_.set(std::move(handler));
  tell_transport(on_read_);
  if (in_place_ != nullptr) in_place_->handler_changed();
}

void Connection::set_write_handler(Handler handler, Barrier barrier) {
  if (given_up_) return;
  barrier_ = barrier;
  on_write_.set(std::move(handler));
  tell_transport(on_write_);
  if (in_place_ != nullptr) in_place_->handler_changed();
}

void Connection::tell_transport(Slot& changed) {
  if (!events_wanted()) return;
  try {
    handlers_changed();
  } catch (...) {
    changed.clear();  // it would never run
    throw;
  }
}

void Connection::set_close_handler(Handler handler, CloseOn when) {
  if (given_up_) return;
  // Destroying what the old handler owns may call this function.
  std::unique_ptr<CloseWatch> before;
  if (!handler) {
    before = std::move(close_watch_);
  } else {
    if (!close_watch_) {
      if (set_ != nullptr) (void)set_->due_to_close(*loop_);
      close_watch_ = std::make_unique<CloseWatch>(*this);
    }
    close_watch_->handler.swap(handler);
    close_watch_->when = when;
    queue_close();
  }
  if (!events_wanted() || (close_watch_ && close_due())) return;
  try {
    handlers_changed();
  } catch (...) {
    before = std::move(close_watch_);  // it would never run
    throw;
  }
}

void Connection::clear_handlers() noexcept {
  if (given_up_) return;
  const std::unique_ptr<CloseWatch> before = std::move(close_watch_);
  barrier_ = Barrier::kNo;
  on_connect_.clear();
  on_read_.clear();
  on_write_.clear();
  if (!events_wanted()) return;
  try {
    handlers_changed();
  } catch (const std::bad_alloc&) {  // an event then finds no handler
  }
  if (in_place_ != nullptr) in_place_->handler_changed();
}

bool Connection::close_due() const noexcept {
  return gone() && (close_watch_->when == CloseOn::kEnd || why_ended());
}

void Connection::peer_gone() noexcept {
  peer_gone_ = true;
  queue_close();
}

void Connection::queue_close() noexcept {
  if (!close_watch_ || set_ == nullptr || !close_due()) return;
  if (ReadyList* const due = set_->due_to_close(); due != nullptr) due->push(*close_watch_);
}

// --- moving to another loop ----------------------------------------------------------------------

bool Connection::do_rebind(ae::EventLoop*) {
  errno = EOPNOTSUPP;
  return false;
}

bool Connection::rebind(ae::EventLoop& loop) { return move(&loop); }

bool Connection::leave() { return move(nullptr); }

bool Connection::move(ae::EventLoop* to) {
  if (!type_.capabilities().rebind) {
    errno = EOPNOTSUPP;
    return false;
  }
  if (given_up_ || abandoned_ || loop_ == nullptr) {
    errno = ENOTCONN;
    return false;
  }
  if (to == loop_) return true;
  // A running handler is taken out of its slot: the new loop's thread would race for the slot.
  if (state_ == State::kConnecting || state_ == State::kAccepting || running_ != 0 ||
      rebind_state_ || reserved_ != 0) {
    errno = EBUSY;
    return false;
  }
  if (in_place_ != nullptr && (!in_place_->flush() || !in_place_->all_told())) {
    errno = EAGAIN;
    return false;
  }
  try {
    return do_rebind(to);
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return false;
  }
}

Connection::Move::Move(Connection& connection, ae::EventLoop* to)
    : connection_(connection), to_(to), rebind_state_(std::make_shared<RebindState>()) {
  rebind_state_->leaving.lock();
  if (to == nullptr) return;
  try {
    to->post([here = rebind_state_, to] {
      const std::lock_guard left(here->leaving);
      if (here->connection != nullptr) here->connection->arrive(*to);
    });
  } catch (...) {
    rebind_state_->leaving.unlock();
    throw;
  }
}

Connection::Move::~Move() { rebind_state_->leaving.unlock(); }

void Connection::Move::leave() noexcept {
  connection_.leave_set();
  if (connection_.in_place_ != nullptr) connection_.in_place_->leave_loop();
  connection_.loop_ = to_;
  connection_.rebind_state_ = rebind_state_;
  rebind_state_->connection = &connection_;
}

// A layer that arrives calls this for the connection below; after rebind() that already has a loop.
bool Connection::join(ae::EventLoop& loop) {
  if (given_up_ || !rebind_state_ || (loop_ != nullptr && loop_ != &loop)) {
    errno = EINVAL;
    return false;
  }
  const bool stood = state_ != State::kError;
  loop_ = &loop;
  arrive(loop);
  if (loop_ != nullptr && (!stood || state_ != State::kError)) return true;
  errno = stood ? errno_of(failure_.code) : ENOMEM;
  return false;
}

void Connection::arrive(ae::EventLoop& loop) noexcept {
  rebind_state_->connection = nullptr;  // a post that has not run yet then does nothing
  rebind_state_.reset();  // the calling post holds another reference; join() needs none
  try {
    set_ = &ConnectionSet::of(loop);
    if (in_place_ != nullptr) in_place_->arrive(set_->in_place(loop));
    if (close_watch_) (void)set_->due_to_close(loop);
    set_->add(*this);  // only its own thread may access it
  } catch (const std::bad_alloc&) {
    if (!given_up_) fail(out_of_memory());
    abandon();  // it is in no set, so the loop's end would not reach it
    return;
  }
  queue_close();
  try {
    counters_ = &set_->counters(type_);
    ++counters_->open;
  } catch (const std::bad_alloc&) {
    if (!given_up_) fail(out_of_memory());
  }
  // Before handlers_changed(), which asks the connection below for events.
  if (!do_join(loop) && !given_up_) fail(out_of_memory());
  if (events_wanted()) watch_or_fail();
}

void Connection::watch_or_fail() noexcept {
  for (int tries = 0; tries < 2; ++tries) {
    try {
      return handlers_changed();
    } catch (const std::bad_alloc&) {
      if (given_up_) return;
      fail(out_of_memory());
    }
  }
}

}}  // namespace conn
