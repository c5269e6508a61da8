// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/socket_carrier.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>

#include "conn/endpoint.h"
#include "conn/kit/descriptor.h"
#include "conn/setup_trace.h"
#include "conn/tcp/linger.h"
#include "conn/tcp/passed_descriptors.h"
#include "conn/tcp/socket_close.h"
#include "conn/tcp/socket_type.h"
#include "conn/url/coded_failure.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

namespace {

ssize_t receive_some(int fd, const iovec* vectors, int count) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(vectors);
  message.msg_iovlen = static_cast<std::size_t>(count);
  return ::recvmsg(fd, &message, 0);
}

/// Sends like sendmsg(2), but never raises SIGPIPE. Makes one system call.
ssize_t send_some(int fd, const iovec* vectors, int count) {
  if (count == 1) return ::send(fd, vectors->iov_base, vectors->iov_len, MSG_NOSIGNAL);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(vectors);
  message.msg_iovlen = static_cast<std::size_t>(count);
  return ::sendmsg(fd, &message, MSG_NOSIGNAL);
}

/// Whether a receive or send call with the error `err` is to be tried again later. EINTR is not
/// expected, since a call that does not block cannot be interrupted. Should it occur, the socket is
/// as ready as before, and the loop's next event reports that.
bool is_for_later(int err) noexcept { return err == EAGAIN || err == EWOULDBLOCK || err == EINTR; }

}  // namespace

SocketCarrier::SocketCarrier(const SocketType& type, std::shared_ptr<const Settings> settings)
    : Carrier(type), socket_(std::move(settings)) {}

void SocketCarrier::adopt(Accepted socket, Quota::Place place) {
  if (socket.client.size != 0) socket_.set_client(socket.client);
  host().occupy(std::move(place));
  socket_.set(std::move(socket.fd), socket.peer);
  move_to(State::kConnected);
}

// --- connecting ----------------------------------------------------------------------------------

void SocketCarrier::connect(const Endpoint& to) {
  const auto& type = static_cast<const SocketType&>(this->type());
  socket_.settings = type.settings_for(to.options);
  SetupTrace::begin("connect");
  dial_ = std::make_unique<Dial>(*loop(), socket_.settings, type.addresses(), to,
                                 [this](Dialed result) { dialed(std::move(result)); });
  try {
    dial_->start();
  } catch (const std::bad_alloc&) {
    // start() may have set its timer already, which would run without an address or a lookup
    dial_.reset();
    throw;
  }
}

void SocketCarrier::dialed(Dialed result) {
  // Keeps the Dial object, which has called this function, until this function returns.
  const std::unique_ptr<Dial> dial = std::move(dial_);
  if (result.fd) {
    host().occupy(std::move(result.place));
    socket_.set(std::move(result.fd), result.peer);
    SetupTrace::end();
    move_to(State::kConnected);
    // Watches the socket for handlers that are already set. This comes before the connect handler
    // runs, so that the handler sees the failure if memory runs out here.
    host().watch_or_fail();
  } else {
    SetupTrace::failed();
    fail(std::move(result.failure));
  }
  (void)host().run_connect_handler();
}

void SocketCarrier::connect_blocking(const Endpoint& to, ae::TimePoint deadline) {
  const auto& type = static_cast<const SocketType&>(this->type());
  socket_.settings = type.settings_for(to.options);
  SetupTrace::begin("connect");
  Dialed result = Dial::wait(*socket_.settings, type.addresses(), to, deadline);
  if (!result.fd) {
    SetupTrace::failed();
    fail(std::move(result.failure));
    return;
  }
  SetupTrace::end();
  host().occupy(std::move(result.place));
  socket_.set(std::move(result.fd), result.peer);
  move_to(State::kConnected);
  interest_changed();
}

// --- reading and writing -------------------------------------------------------------------------

ssize_t SocketCarrier::read(void* buffer, std::size_t size) {
  if (socket_.descriptor().passes_descriptors()) [[unlikely]] {
    const iovec all{buffer, size};
    return receive_without_descriptors(&all, 1);
  }
  const ssize_t n = ::recv(socket_.fd(), buffer, size, 0);
  return n > 0 ? n : received_nothing(n);
}

/// Reads from a Unix socket whose peer may pass descriptors; if any come, the connection fails.
/// Returns what read() must return.
ssize_t SocketCarrier::receive_without_descriptors(const iovec* vectors, int count) {
  bool came = false;
  const ssize_t n = receive_without(socket_.fd(), vectors, count, 0, came);
  if (!came) return n > 0 ? n : received_nothing(n);
  if (state() == State::kError) return host().no_more_unread();
  return failed(EPROTO, "the peer passes descriptors: read from ");
}

/// Handles a receive call whose result `n` was 0 or negative: records the peer's end of stream or a
/// failure, and returns what read() must return.
ssize_t SocketCarrier::received_nothing(ssize_t n) {
  if (state() == State::kError) return host().no_more_unread();
  if (n < 0) {
    if (!is_for_later(errno)) return failed(errno, "read from ");
    errno = EAGAIN;
    return -1;
  }
  read_ended_ = true;
  if (write_ended_) move_to(State::kClosed);
  return 0;
}

ssize_t SocketCarrier::readv(const iovec* vectors, int count) {
  ssize_t total = 0;
  while (count > 0) {
    const int chunk = std::min(count, IOV_MAX);
    std::size_t asked = 0;
    for (int i = 0; i < chunk; ++i) asked += vectors[i].iov_len;
    if (asked != 0) {  // receiving into 0 bytes would return 0, which looks like end of stream
      if (socket_.descriptor().passes_descriptors()) [[unlikely]]
        return total > 0 ? total : receive_without_descriptors(vectors, chunk);
      const ssize_t n = receive_some(socket_.fd(), vectors, chunk);
      if (n <= 0 && total == 0) return received_nothing(n);
      if (n < 0 && !is_for_later(errno) && state() != State::kError)
        // records the failure now, since the kernel reports an error only once
        (void)failed(errno, "read from ");
      // returns the bytes read so far; the next readv() reports end of stream or the error
      if (n <= 0) return total;
      total += n;
      if (static_cast<std::size_t>(n) < asked) break;
    }
    vectors += chunk;
    count -= chunk;
  }
  return total;
}

ssize_t SocketCarrier::write(const void* buffer, std::size_t size) {
  const ssize_t n = ::send(socket_.fd(), buffer, size, MSG_NOSIGNAL);
  return n >= 0 ? n : sent_nothing();
}

/// Handles a send call that has failed; errno has the reason. Returns what write() must return.
ssize_t SocketCarrier::sent_nothing() {
  if (is_for_later(errno)) {
    errno = EAGAIN;
    return -1;
  }
  // Writing after shutdown() (EPIPE) is a mistake of the caller, not a failure of the connection.
  return errno == EPIPE && write_ended_ ? -1 : failed(errno, "write to ");
}

ssize_t SocketCarrier::writev(const iovec* vectors, int count) {
  ssize_t total = 0;
  while (count > 0) {
    const int chunk = std::min(count, IOV_MAX);
    const ssize_t n = send_some(socket_.fd(), vectors, chunk);
    if (n < 0) {
      (void)sent_nothing();
      // returns the bytes written so far; the next call reports the error
      return total > 0 ? total : -1;
    }
    total += n;
    if (chunk == count) break;
    std::size_t asked = 0;
    for (int i = 0; i < chunk; ++i) asked += vectors[i].iov_len;
    if (static_cast<std::size_t>(n) < asked) break;
    vectors += chunk;
    count -= chunk;
  }
  return total;
}

/// Marks the connection as failed. Unread input is kept: if a write finds a reset, the kernel still
/// has what the peer sent before the reset. The kernel reports a failure only once, so it is
/// recorded even without memory for its text.
ssize_t SocketCarrier::failed(int err, const char* what) noexcept {
  fail(coded_failure({err, std::generic_category()},
                     [&] { return errno_failure(err, what + socket_.peer_address()).text; }));
  host().keep_unread();
  if (aside_) aside_->tell_done();
  try {
    announce_error();
  } catch (const std::bad_alloc&) {
    // If memory runs out no handler is called, but the next read or write reports the error.
  }
  errno = err;
  return -1;
}

int SocketCarrier::shutdown() { return shut_down(SHUT_WR); }

int SocketCarrier::shutdown_both() {
  if (shut_down(SHUT_RDWR) != 0) return -1;
  // Input of the peer may still arrive in state kClosed; close() takes that into account.
  if (state() == State::kConnected) move_to(State::kClosed);
  return 0;
}

int SocketCarrier::shut_down(int how) {
  if (::shutdown(socket_.fd(), how) != 0) {
    const int err = errno;
    if (err != ENOTCONN) return -1;
    // On a connected socket, ENOTCONN from shutdown(2) means that the peer's reset has arrived.
    return static_cast<int>(failed(ECONNRESET, "shutdown towards "));
  }
  write_ended_ = true;
  if (read_ended_) move_to(State::kClosed);
  return 0;
}

bool SocketCarrier::wait_for(ae::Mask direction, ae::TimePoint deadline) {
  // A full Unix socket does not become writable by shutdown(), after which write() fails at once.
  if (direction == ae::kWritable && write_ended_) return true;
  const short events = direction == ae::kReadable ? POLLIN : POLLOUT;
  bool ready;
  do {  // repeated as long as zero-copy completions arrive, since poll(2) returns for them, too
    ready = poll_until(socket_.fd(), events, deadline);
  } while (aside_ && aside_->take_completions());
  return ready;
}

// --- zero-copy sending ---------------------------------------------------------------------------

bool SocketCarrier::sends_in_place(const Outgoing& bytes) const noexcept {
  // Zero-copy sending requires option linger. Without it the kernel delivers the rest of the output
  // by itself after close(), from memory that the caller may use again by then.
  return socket_.settings->zero_copy != 0 && bytes.bytes.size() >= socket_.settings->zero_copy &&
         !socket_.zero_copy_given_up && socket_.settings->linger > ae::Duration::zero();
}

ssize_t SocketCarrier::send(const Outgoing& bytes) {
  if (!aside_ || !aside_->goes_on()) {
    bool begun = false;
    try {
      if (sends_in_place(bytes)) {
        if (!aside_) aside_ = std::make_unique<SocketAside>(*this, socket_);
        lends_ = true;
        begun = aside_->begin();
      }
    } catch (const std::bad_alloc&) {  // fails with EOPNOTSUPP: the caller then copies the bytes
    }
    if (!begun) {
      errno = EOPNOTSUPP;
      return -1;
    }
  }
  const ssize_t n = aside_->send(bytes.bytes);
  if (n >= 0) return n;
  const int err = errno;
  if (err != EAGAIN && err != EWOULDBLOCK) return failed(err, "write to ");
  errno = EAGAIN;
  return -1;
}

// --- events of the socket ------------------------------------------------------------------------

void SocketCarrier::interest_changed() {
  switch (state()) {
    case State::kConnected:
    case State::kClosed: {
      ae::Mask wanted = ae::kNone;
      if (host().wants_read()) wanted = wanted | ae::kReadable;
      if (host().wants_write()) wanted = wanted | ae::kWritable;
      if (host().wants_write() && host().barrier() == Barrier::kYes) wanted = wanted | ae::kBarrier;
      events_.watch(
          *loop(), socket_.fd(), wanted, [this] { readable(); }, [this] { writable(); });
      watch_aside();
      break;
    }
    case State::kError:
      announce_error();
      break;
    default:
      // nothing to request while connecting; dialed() calls this function again once connected
      break;
  }
}

void SocketCarrier::watch_aside() {
  if (!aside_) {
    if (!host().wants_close()) return;
    aside_ = std::make_unique<SocketAside>(*this, socket_);
  }
  aside_->watch();
}

void SocketCarrier::readable() {
  if (!is_plain()) [[unlikely]]
    return run_if_ready(POLLIN);
  (void)host().run_read_handler();
}

void SocketCarrier::writable() {
  if (!is_plain()) [[unlikely]]
    return run_if_ready(POLLOUT);
  (void)host().run_write_handler();
}

/// Does what readable() (POLLIN) and writable() (POLLOUT) do for a socket with memory lent to the
/// kernel, or with a failure: runs the handler only if the socket is really ready.
[[gnu::noinline]] void SocketCarrier::run_if_ready(short event) {
  if (aside_ && !aside_->is_ready(event)) return;
  const Alive alive = event == POLLIN ? host().run_read_handler() : host().run_write_handler();
  if (alive == Alive::kYes && state() == State::kError) announce_error();
}

void SocketCarrier::stop_watching() {
  if (loop() == nullptr) return;
  if (aside_) aside_->leave();
  events_.stop(*loop(), socket_.fd());
  failure_timer_.stop(*loop());
}

/// Makes the handlers run for a failure of the connection, by a timer instead of socket events.
void SocketCarrier::announce_error() {
  try {
    failure_timer_.start(*this);
  } catch (const std::bad_alloc&) {
    if (!events_.any()) throw;
    // The socket is still watched: its next event runs the handlers, and readable() or writable()
    // then calls this function again.
    return;
  }
  events_.stop(*loop(), socket_.fd());
}

// --- the end of the connection -------------------------------------------------------------------

void SocketCarrier::close() noexcept {
  dial_.reset();
  const bool lent = aside_ && aside_->is_lent();
  stop_watching();
  // True if there may be output to deliver or input to read, which is also possible in state
  // kClosed, after shutdown_both().
  const bool stands = socket_.fd() >= 0 && (state() == State::kConnected ||
                                            (state() == State::kClosed && (lent || !read_ended_)));
  if (aborts()) {
    close_socket(true);
  } else if (stands && socket_.is_inet() && socket_.settings->linger > ae::Duration::zero() &&
             (lent || (!read_ended_ && !closes_clean(socket_.fd(), peer_done_)))) {
    try {
      if (!aside_) aside_ = std::make_unique<SocketAside>(*this, socket_);
      aside_->linger(socket_.settings->linger, [this] {
        close_socket();
        host().release();
      });
      return;
    } catch (const std::bad_alloc&) {  // without memory for the Linger, closes the socket at once
      if (aside_) aside_->end_linger();
    }
  }
  // Closes the socket at once: nothing is left to deliver; or the kernel delivers the rest by
  // itself, because no input can provoke a reset; or lingering is off (linger=0) or impossible for
  // lack of memory. No effect after abort(): the socket is closed already.
  close_socket();
  host().release();
}

/// Closes the socket so that the kernel no longer reads lent memory. With `reset`, a tcp peer gets
/// a reset, and a vsock peer gets none; a unix peer gets one only if input is unread here, since
/// the kernel offers no other way.
void SocketCarrier::close_socket(bool reset) noexcept {
  Fd& fd = socket_.descriptor();
  if (reset && socket_.is_unix()) return fd.abort_unix();
  if (reset && fd && socket_.is_inet() && !inherited()) reset_when_closed(fd.get());
  if (aside_ && aside_->is_lent() && aside_->is_ours()) reset_when_closed(fd.get());
  fd.reset();
}

bool SocketCarrier::drain(ae::TimePoint until) noexcept {
  if (aside_ && aside_->lingers()) return aside_->drain(until);
  // output of a Unix socket has been delivered once it is written, and that of vsock fits into the
  // peer's buffer
  if (socket_.fd() < 0 || !socket_.is_inet()) return true;
  if (aside_ && aside_->is_lent()) return aside_->drain(until);
  // After the peer's end of stream there is nothing to wait for: the kernel finishes delivery by
  // itself.
  if ((state() != State::kConnected && state() != State::kClosed) || read_ended_) return true;
  return deliver(socket_.fd(), until);
}

ae::Duration SocketCarrier::end_linger() const noexcept {
  return std::min(socket_.settings->linger, socket_.settings->end_linger);
}

void SocketCarrier::abandon() noexcept {
  dial_.reset();
  if (aside_) aside_->end_linger();
  stop_watching();
  close_socket(aborts());
}

bool SocketCarrier::leave(ae::EventLoop*) {
  stop_watching();
  return true;
}

int SocketCarrier::release_descriptor() noexcept {
  // Refuses to give the socket away if memory was lent to the kernel, because the completions
  // arrive on the socket, and if there is an idle time-out, because only the loop can enforce it.
  if (lends_ || socket_.settings->idle_timeout != ae::Duration::zero()) return -1;
  const int flags = ::fcntl(socket_.fd(), F_GETFL);
  if (flags < 0 || ::fcntl(socket_.fd(), F_SETFL, flags & ~O_NONBLOCK) != 0) return -1;
  stop_watching();
  if (socket_.descriptor().is_unix()) make_ordinary(socket_.fd());
  return socket_.descriptor().release();
}

}}}  // namespace conn::tcp
