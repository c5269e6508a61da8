// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/carrier.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "conn/kit/errno_of.h"
#include "conn/setup_trace.h"
#include "conn/tls/type.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

TlsCarrier::TlsCarrier(const TlsType& type, LoopState& shared)
    : QueuedCarrier(type, shared.ready()),
      Below::User(static_cast<Carrier&>(*this)),
      place_(session_, shared) {}

// --- the handshake -------------------------------------------------------------------------------

Handshake& TlsCarrier::new_handshake() {
  handshake_ = std::make_unique<Handshake>(*this, session_, static_cast<const TlsType&>(type()),
                                           place_.state(type(), *loop()));
  return *handshake_;
}

Handshake& TlsCarrier::begin(ConnectionPtr below, Role role, std::shared_ptr<const Context> context,
                             const std::string& name, const Handshake::Keeper& keeper) {
  session_.take(std::move(below), std::move(context));
  try {
    new_handshake().begin(role, name, keeper);
    move_to(role == Role::kServer ? State::kAccepting : State::kConnecting);
    interest_changed();
  } catch (...) {
    handshake_.reset();
    throw;
  }
  return *handshake_;
}

void TlsCarrier::connect(const Endpoint& to) {
  try {
    new_handshake().connect(to);
  } catch (...) {
    handshake_.reset();
    throw;
  }
}

void TlsCarrier::connect_blocking(const Endpoint& to, ae::TimePoint deadline) {
  Failure why;
  try {
    why = new_handshake().run(to, deadline);
  } catch (...) {
    handshake_.reset();
    throw;
  }
  handshake_.reset();
  Counters& counters = place_.state(type(), *loop()).counters;
  if (why) {
    // Only a handshake that has begun counts as failed, not an attempt to connect the layer below.
    if (session_.begun() && session_.engine().progress().phase() != Phase::kNew) {
      ++counters.handshake_failures;
      if (why.code == Errc::kTimeout) ++counters.handshake_timeouts;
    }
    fail(std::move(why));
    return;
  }
  SetupTrace::end();
  session_.give_secret();
  move_to(State::kConnected);
  ++counters.handshakes;
  if (SSL_session_reused(session_.engine().ssl()) == 1) ++counters.resumed;
  (void)session_.engine().look(false);
  // sends the last message of the handshake now, because the peer waits for it
  (void)flush(ae::TimePoint::min());
  interest_changed();
}

void TlsCarrier::handshake_over(Failure failure) {
  const Handshake::Keeper keeper = handshake_->keeper();
  handshake_.reset();
  LoopState& shared = place_.state(type(), *loop());
  // The connection has failed while the handshake ran: a Stop has aborted it. fail() keeps the
  // reason of that failure.
  if (!failure && state() == State::kError) {
    ++shared.counters.handshake_failures;
    failure.code = host().failure().code;
  }
  if (!failure) {
    if (state() == State::kConnecting) SetupTrace::end();
    session_.give_secret();
    move_to(State::kConnected);
    fresh_ = true;
    try {
      place_.touch();
      // The peer's first request may have come with its last handshake message. So the session
      // tickets are held back, to be sent together with the reply to that request.
      if (session_.engine().output().holds()) shared.held().push(held_);
      (void)session_.engine().look(false);
      interest_changed();
    } catch (const std::bad_alloc&) {
      ++shared.counters.handshake_failures;
      failure = out_of_memory();
    }
  }
  if (failure) {
    fail(std::move(failure));
    if (keeper.owner != nullptr) return keeper.owner->failed(keeper.place, host().failure());
    go_on();
    return;
  }
  ++shared.counters.handshakes;
  if (SSL_session_reused(session_.engine().ssl()) == 1) ++shared.counters.resumed;
  // This call must come last: the accept handler may close this connection or pass it to another
  // thread.
  if (keeper.owner != nullptr) keeper.owner->finished(keeper.place);
}

std::size_t TlsCarrier::Held::run_ready() {
  Engine& engine = carrier.session_.engine();
  if (!engine.output().holds()) return 0;
  (void)engine.flush();
  if (engine.failed() && carrier.state() == State::kConnected)
    (void)carrier.report_failure("write to ");
  carrier.go_on();
  return 0;
}

// --- events of the connection below TLS ----------------------------------------------------------

/// Requests from the connection below TLS those events that the handshake, the handlers or closing
/// need now.
void TlsCarrier::interest_changed() {
  if (loop() == nullptr) return;
  attach_list(place_.state(type(), *loop()).ready());
  ae::Mask wanted = ae::kNone;
  const bool connected = state() == State::kConnected;
  if (inherited()) {  // true in a forked child, which can neither send nor receive
    if (handshake_) handshake_->leave_to_parent();
    held_.unqueue();
  } else if (handshake_) {
    wanted = handshake_->wanted();
  } else if (closing()) {
    wanted = closing_.wanted();
  } else if (session_.begun() && !session_.engine().failed()) {
    const bool reads = connected && !session_.engine().progress().ended() &&
                       (host().wants_read() || fresh_ || session_.engine().write_needs_read());
    wanted = session_.wanted(reads, host().wants_write());
  }
  if (Below& below = session_.below(); below.open() != nullptr) {
    const Engine* const engine = connected ? &session_.engine() : nullptr;
    if (connected && (engine->progress().ended() || engine->failed() || below.gone()))
      host().peer_gone();
    below.watch(wanted);
  }
  update_ready();
}

/// Whether interest_changed() would change nothing, which is usual after each message: the program
/// waits for input, the connection below TLS was asked for it, and no handler is due.
bool TlsCarrier::is_quiet() const {
  return state() == State::kConnected && host().wants_read() && !host().wants_write() &&
         session_.is_quiet();
}

void TlsCarrier::go_on() {
  if (is_quiet()) return;
  try {
    interest_changed();
  } catch (const std::bad_alloc&) {
    if (handshake_) return handshake_->fail(out_of_memory());
    fail(out_of_memory());
    update_ready();
  }
}

void TlsCarrier::below_connected() {
  if (handshake_) handshake_->below_connected();
}

void TlsCarrier::below_readable() {
  if (handshake_) return handshake_->proceed();
  if (closing()) {
    if (closing_.discard(place_.state(type(), *loop()).scratch())) go_on();
    return;
  }
  if (state() != State::kConnected) return;
  if (std::exchange(fresh_, false) && !host().wants_read()) {
    go_on();
    return;
  }
  place_.touch();
  struct Then {  // the destructor calls go_on(), even if the handler throws
    TlsCarrier& carrier;
    ~Then() {
      if (!carrier.closing()) carrier.go_on();
    }
  } then{*this};
  // Calls the read handler here instead of queuing it in the ready list, which saves a second pass
  // of the loop in the common case. With Barrier::kYes the list is used, because it keeps the order
  // of reads and writes.
  const bool straight = host().wants_read() && !host().connect_due() &&
                        !(host().wants_write() && host().barrier() == Barrier::kYes);
  if (!session_.stalled() && session_.engine().look(true) && straight &&
      !session_.engine().only_maybe())
    (void)host().run_read_handler();
}

void TlsCarrier::below_writable() {
  session_.below().try_again();
  if (handshake_ && !session_.begun()) return;  // a thread runs a step of the handshake
  const bool flushed = session_.engine().flush();
  closing_.output_left();
  if (closing()) {
    if (flushed) closing_.finish(host());
    return;
  }
  if (handshake_) {
    handshake_->proceed();  // the handshake may have waited for its output to be sent
  } else if (session_.engine().failed() && state() == State::kConnected) {
    (void)report_failure("write to ");
  } else if (flushed && state() == State::kConnected) {
    // looks for input again: reading stops while too many of our own bytes are unsent
    (void)session_.engine().look(false);
  }
  go_on();
}

// --- reading and writing data --------------------------------------------------------------------

ssize_t TlsCarrier::read(void* buffer, std::size_t size) {
  Engine& engine = session_.engine();
  if (state() == State::kError) {
    const ssize_t n = engine.read(buffer, size);
    return n > 0 ? n : host().no_more_unread();
  }
  if (session_.stalled()) {
    interest_changed();
    errno = EAGAIN;
    return -1;
  }
  place_.touch();
  const ssize_t n =
      size > Engine::kRecord ? engine.read(buffer, size, place_.room()) : engine.read(buffer, size);
  if (n > 0 && is_quiet()) return n;
  int err = errno;
  if (n == 0) {
    if (closing_.end_reading() && state() == State::kConnected) move_to(State::kClosed);
  } else if (n < 0 && engine.failed()) {
    err = report_failure("read from ");
  }
  go_on();
  errno = err;
  return n;
}

ssize_t TlsCarrier::write(const void* buffer, std::size_t size) {
  if (refuses_write()) return -1;
  place_.touch();
  const ssize_t n = session_.write(buffer, size, place_.state(type(), *loop()));
  return n > 0 && session_.all_sent() ? n : wrote(n);
}

ssize_t TlsCarrier::writev(const iovec* vectors, int count) {
  if (refuses_write()) return -1;
  place_.touch();
  const ssize_t n = session_.write(vectors, count, place_.state(type(), *loop()));
  return n > 0 && session_.all_sent() ? n : wrote(n);
}

bool TlsCarrier::refuses_write() noexcept {
  if (closing_.state() == Closing::State::kOpen) [[likely]]
    return false;
  if (!closing_.write_ended()) {
    wrote_after_end_ = true;
    return false;
  }
  errno = EPIPE;
  return true;
}

/// Continues after a write with the result `n`, which has left output or has failed: marks a
/// failure, and requests the events that are needed to send the rest. Returns `n`.
ssize_t TlsCarrier::wrote(ssize_t n) {
  int err = errno;
  if (n < 0 && session_.engine().failed()) err = report_failure("write to ");
  go_on();
  errno = err;
  return n;
}

/// Marks the connection as failed and returns the errno value that the failed read or write must
/// set. If a write found the failure, data that the peer sent before it can still be read.
int TlsCarrier::report_failure(const char* what) {
  if (session_.engine().failure().code == Errc::kTooManyMessages)
    ++place_.state(type(), *loop()).counters.message_floods;
  fail(session_.why_failed(what));
  if (!session_.engine().progress().reading_over()) host().keep_unread();
  return errno_of(host().failure());
}

bool TlsCarrier::wait_for(ae::Mask direction, ae::TimePoint deadline) {
  // After shutdown() write() fails with EPIPE at once, even while output is unsent.
  const bool ready = (direction == ae::kWritable && closing_.write_ended()) ||
                     session_.wait_for(direction, deadline);
  interest_changed();
  return ready;
}

bool TlsCarrier::flush(ae::TimePoint until) noexcept {
  if (!session_.begun() || session_.below().open() == nullptr || handshake_) return true;
  Engine& engine = session_.engine();
  try {
    (void)session_.flush(until);
    if (!closing()) interest_changed();
  } catch (const std::bad_alloc&) {  // if memory runs out, the loop sends the rest later
  }
  Carrier& below = session_.below().carrier();
  const bool flushed = below.flush(until);
  if (state() == State::kConnected && loop() != nullptr && !closing()) {
    // The connection below may have failed with bytes that it had accepted, so that this layer had
    // nothing left to write. It may also report the failure only after bytes that it has received,
    // which can be records without data for the program.
    if (!flushed && !engine.failed() && below.why_ended()) {
      errno = errno_of(below.why_ended());
      engine.on_wire_failure();
    }
    if (engine.failed()) (void)wrote(-1);
  }
  // Once both ends have ended their streams, the peer may be gone, and a close_notify that it did
  // not take is no lost output. Bytes written after the peer's end may have been lost with it.
  const bool only_close_notify = state() == State::kClosed && engine.progress().ended() &&
                                 engine.wire_failed() && !engine.failed() && !wrote_after_end_;
  return engine.output().unsent() == 0 && (only_close_notify || (flushed && !engine.wire_failed()));
}

// --- the end of the connection -------------------------------------------------------------------

int TlsCarrier::shutdown() {
  if (closing_.end_writing()) move_to(State::kClosed);
  go_on();
  return 0;
}

int TlsCarrier::shutdown_both() {
  if (Carrier::shutdown_both() != 0) return -1;
  closing_.end_below_too();
  return 0;
}

void TlsCarrier::leave_loop() noexcept {
  handshake_.reset();
  closing_.leave(loop());
  unqueue();
  held_.unqueue();
  place_.leave();
}

void TlsCarrier::close() noexcept {
  leave_loop();
  if (aborts()) return closing_.finish(host());
  try {
    if (closing_.begin(state() == State::kConnected)) {
      interest_changed();
      closing_.linger(*loop(), host());
      return;
    }
  } catch (const std::bad_alloc&) {
    // If there is no memory for close_notify or for lingering, closes at once.
  }
  closing_.finish(host());
}

bool TlsCarrier::drain(ae::TimePoint until) noexcept {
  if (session_.begun() && session_.below().open() != nullptr && !handshake_) {
    (void)flush(until);
    if (session_.engine().output().unsent() != 0) return false;
    if (closing()) closing_.finish(host());  // the connection below TLS delivers what is left
  }
  return session_.below().drain(until);
}

ae::Duration TlsCarrier::linger() const noexcept {
  return session_.has_context() ? session_.settings().linger : Carrier::linger();
}

ae::Duration TlsCarrier::end_linger() const noexcept {
  const ae::Duration below = session_.below().end_linger();
  if (!session_.has_context()) return below;
  return std::max(below, std::min(session_.settings().linger, session_.settings().end_linger));
}

/// Returns this layer's option idle-timeout or, if that is not set, the option of the layer below:
/// the time-out has to fail the program's connection, which is the TLS connection.
ae::Duration TlsCarrier::idle_timeout() const noexcept {
  if (session_.has_context() && session_.settings().idle_timeout > ae::Duration::zero())
    return session_.settings().idle_timeout;
  const Carrier* const below = session_.below().open();
  return below != nullptr ? below->idle_timeout() : ae::Duration::zero();
}

void TlsCarrier::abandon() noexcept {
  leave_loop();
  session_.below().abandon();
  detach_list();
  place_.forget();
}

bool TlsCarrier::leave(ae::EventLoop* to) {
  if (session_.begun()) (void)session_.engine().flush();
  if (!session_.below().leave(to)) return false;
  leave_loop();
  detach_list();
  place_.forget();
  return true;
}

bool TlsCarrier::join(ae::EventLoop& loop) { return session_.below().join(loop); }

/// Returns why the connection has ended. While this connection itself has not failed, returns the
/// reason that the connection below TLS knows.
const Failure& TlsCarrier::why_ended() const noexcept {
  const Carrier* const below = session_.below().open();
  const bool established = below != nullptr && state() == State::kConnected && !handshake_;
  return established ? below->why_ended() : Carrier::why_ended();
}

}}}  // namespace conn::tls
