// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/socket_carrier.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "conn/endpoint.h"
#include "conn/setup_trace.h"
#include "conn/tcp/socket_type.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

namespace {

ssize_t receive_some(int fd, const iovec* vectors, int count) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(vectors);
  message.msg_iovlen = static_cast<std::size_t>(count);
  ssize_t n;
  do {
    n = ::recvmsg(fd, &message, 0);
  } while (n < 0 && errno == EINTR);
  return n;
}

/// One system call. As sendmsg(2), without SIGPIPE.
ssize_t send_some(int fd, const iovec* vectors, int count) {
  ssize_t n;
  do {
    if (count == 1) {
      n = ::send(fd, vectors->iov_base, vectors->iov_len, MSG_NOSIGNAL);
    } else {
      msghdr message{};
      message.msg_iov = const_cast<iovec*>(vectors);
      message.msg_iovlen = static_cast<std::size_t>(count);
      n = ::sendmsg(fd, &message, MSG_NOSIGNAL);
    }
  } while (n < 0 && errno == EINTR);
  return n;
}

}  // namespace

SocketCarrier::SocketCarrier(const SocketType& type, std::shared_ptr<const Settings> settings)
    : Carrier(type), settings_(std::move(settings)) {}

void SocketCarrier::adopt(Fd fd, const SocketAddress& peer, Quota::Place place) {
  host().occupy(std::move(place));
  fd_ = std::move(fd);
  peer_ = PeerAddress(peer);
  move_to(State::kConnected);
}

// --- connecting ----------------------------------------------------------------------------------

void SocketCarrier::connect(const Endpoint& to) {
  const auto& type = static_cast<const SocketType&>(this->type());
  settings_ = type.settings_for(to.options);
  SetupTrace::begin("connect");
  dial_ = std::make_unique<Dial>(*loop(), settings_, type.addresses(), to,
                                 [this](Dialed result) { dialed(std::move(result)); });
  dial_->start();
}

void SocketCarrier::dialed(Dialed result) {
  const std::unique_ptr<Dial> dial = std::move(dial_);  // on the stack: keep it until we return
  if (result.fd) {
    host().occupy(std::move(result.place));
    fd_ = std::move(result.fd);
    peer_ = PeerAddress(result.peer);
    SetupTrace::end();
    move_to(State::kConnected);
    // Watches for handlers that are already set. Before the connect handler runs, so that it sees
    // the failure if memory runs out.
    host().watch_or_fail();
  } else {
    SetupTrace::failed();
    fail(std::move(result.failure));
  }
  (void)host().run_connect_handler();
}

void SocketCarrier::connect_blocking(const Endpoint& to, ae::TimePoint deadline) {
  const auto& type = static_cast<const SocketType&>(this->type());
  settings_ = type.settings_for(to.options);
  SetupTrace::begin("connect");
  Dialed result = Dial::wait(*settings_, type.addresses(), to, deadline);
  if (!result.fd) {
    SetupTrace::failed();
    fail(std::move(result.failure));
    return;
  }
  SetupTrace::end();
  host().occupy(std::move(result.place));
  fd_ = std::move(result.fd);
  peer_ = PeerAddress(result.peer);
  move_to(State::kConnected);
  interest_changed();
}

// --- data ----------------------------------------------------------------------------------------

ssize_t SocketCarrier::read(void* buffer, std::size_t size) {
  ssize_t n;
  do {
    n = ::recv(fd_.get(), buffer, size, 0);
  } while (n < 0 && errno == EINTR);
  return n > 0 ? n : received_nothing(n);
}

/// The result of read() after a receive that returned `n` <= 0.
ssize_t SocketCarrier::received_nothing(ssize_t n) {
  if (state() == State::kError) return host().no_more_unread();
  if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? -1 : failed(errno, "read from ");
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
    if (asked != 0) {  // a receive of 0 bytes would look like end of stream
      const ssize_t n = receive_some(fd_.get(), vectors, chunk);
      if (n <= 0 && total == 0) return received_nothing(n);
      if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && state() != State::kError)
        (void)failed(errno, "read from ");  // the kernel reports it only once
      if (n <= 0) return total;             // the next call reports the end or error
      total += n;
      if (static_cast<std::size_t>(n) < asked) break;
    }
    vectors += chunk;
    count -= chunk;
  }
  return total;
}

ssize_t SocketCarrier::writev(const iovec* vectors, int count) {
  ssize_t total = 0;
  while (count > 0) {
    const int chunk = std::min(count, IOV_MAX);
    const ssize_t n = send_some(fd_.get(), vectors, chunk);
    if (n < 0) {
      const int err = errno;
      if (err == EAGAIN || err == EWOULDBLOCK) return total > 0 ? total : -1;
      if (err == EPIPE && write_ended_) return total > 0 ? total : -1;  // the caller's mistake
      failed(err, "write to ");
      return total > 0 ? total : -1;  // after a partial write the next call reports the error
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

/// Marks the connection as failed; returns -1 with `err` in errno. If a write finds a reset, the
/// kernel still has what the peer sent before it, so unread input is kept. The kernel reports a
/// failure only once, so it is recorded even without memory for its text.
ssize_t SocketCarrier::failed(int err, const char* what) noexcept {
  Failure why = out_of_memory();
  why.code = {err, std::generic_category()};
  try {
    why = errno_failure(err, what + peer_address());
  } catch (const std::bad_alloc&) {
  }
  fail(std::move(why));
  host().keep_unread();
  tell_done();
  try {
    announce_error();
  } catch (const std::bad_alloc&) {  // the next read or write still reports it
  }
  errno = err;
  return -1;
}

int SocketCarrier::shutdown() { return shut_down(SHUT_WR); }

int SocketCarrier::shutdown_both() {
  if (shut_down(SHUT_RDWR) != 0) return -1;
  if (state() == State::kConnected) move_to(State::kClosed);  // input may still arrive: see close()
  return 0;
}

int SocketCarrier::shut_down(int how) {
  if (::shutdown(fd_.get(), how) != 0) {
    const int err = errno;
    if (err != ENOTCONN) return -1;
    // ENOTCONN: the peer's reset has already arrived.
    return static_cast<int>(failed(ECONNRESET, "shutdown towards "));
  }
  write_ended_ = true;
  if (read_ended_) move_to(State::kClosed);
  return 0;
}

bool SocketCarrier::wait_for(ae::Mask direction, ae::TimePoint deadline) {
  const short events = direction == ae::kReadable ? POLLIN : POLLOUT;
  bool ready;
  do {
    ready = poll_until(fd_.get(), events, deadline);
  } while (take_completions());  // completions end a poll(2) too
  return ready;
}

// --- events --------------------------------------------------------------------------------------

void SocketCarrier::interest_changed() {
  switch (state()) {
    case State::kConnected:
    case State::kClosed: {
      ae::Mask wanted = ae::kNone;
      if (host().wants_read()) wanted = wanted | ae::kReadable;
      if (host().wants_write()) wanted = wanted | ae::kWritable;
      if (host().wants_write() && host().barrier() == Barrier::kYes) wanted = wanted | ae::kBarrier;
      watch(wanted);
      watch_aside();
      break;
    }
    case State::kError:
      announce_error();
      break;
    default:
      break;  // dialed() calls this again
  }
}

void SocketCarrier::watch(ae::Mask wanted) {
  constexpr ae::Mask kWriting = ae::kWritable | ae::kBarrier;
  if (wanted == watched_) return;
  const auto handler = [this](int, ae::Mask direction) { ready(direction); };
  if ((wanted & ae::kReadable) != (watched_ & ae::kReadable)) {
    if ((wanted & ae::kReadable) != 0) {
      loop()->add_file_event(fd_.get(), ae::kReadable | ae::kTrusted, handler);
    } else {
      loop()->remove_file_event(fd_.get(), ae::kReadable);
    }
    watched_ = (watched_ & kWriting) | (wanted & ae::kReadable);  // the code below may throw
  }
  if ((wanted & kWriting) != (watched_ & kWriting)) {
    if ((watched_ & ae::kWritable) != 0) loop()->remove_file_event(fd_.get(), kWriting);
    watched_ = watched_ & ae::kReadable;
    if ((wanted & ae::kWritable) != 0) {
      loop()->add_file_event(fd_.get(), (wanted & kWriting) | ae::kTrusted, handler);
    }
  }
  watched_ = wanted;
}

/// Updates the registration for events that file events do not report (SocketEvents).
void SocketCarrier::watch_aside() {
  const bool peer = host().wants_close(), lends = lending_ && lending_->active();
  if (!side_) {
    if (!peer && !lends) return;
    side_ = std::make_unique<Side>(*this);
  }
  unsigned what = peer ? SocketEvents::kPeerGone : SocketEvents::kNothing;
  if (lends) what |= SocketEvents::kErrors;
  SocketEvents::watch(*loop(), *side_, fd_.get(), what);
}

void SocketCarrier::Side::on_socket_event(bool peer_gone, bool error) noexcept {
  (void)carrier.take_completions();
  if (peer_gone) carrier.host().peer_gone();
  if (!error || (carrier.state() != State::kConnected && carrier.state() != State::kClosed)) return;
  int err = 0;
  socklen_t size = sizeof err;
  if (getsockopt(carrier.fd(), SOL_SOCKET, SO_ERROR, &err, &size) != 0 || err == 0) return;
  (void)carrier.failed(err, "connection to ");  // SO_ERROR is cleared: no later call reports it
}

void SocketCarrier::ready(ae::Mask direction) {
  // Zero-copy completions wake the loop as if the socket were ready, so readiness is checked here.
  if (lending_ && (take_completions(), lending_->had_completions())) {
    pollfd entry{fd_.get(), (direction & ae::kWritable) != 0 ? short{POLLOUT} : short{POLLIN}, 0};
    if (::poll(&entry, 1, 0) == 0) return;
  }
  const Alive alive =
      (direction & ae::kWritable) != 0 ? host().run_write_handler() : host().run_read_handler();
  if (alive == Alive::kYes && state() == State::kError) announce_error();
}

void SocketCarrier::stop_watching() {
  if (loop() == nullptr) return;
  if (side_) side_->leave();
  if (watched_ != ae::kNone) loop()->remove_file_event(fd_.get(), ae::kReadable | ae::kWritable);
  watched_ = ae::kNone;
  if (error_timer_ != 0) loop()->remove_time_event(error_timer_);
  error_timer_ = 0;
}

/// A failed socket stays readable and writable. So it is no longer watched; a timer runs the
/// handlers until they have collected the error. A host that closes late does not spin.
void SocketCarrier::announce_error() {
  if (error_timer_ == 0 && host().error_due()) {
    try {
      error_timer_ = loop()->add_time_event(ae::Duration::zero(), [this] {
        error_timer_ = 0;
        tell_error();
        return ae::kNoMore;
      });
    } catch (const std::bad_alloc&) {
      if (watched_ == ae::kNone) throw;
      return;  // the watched socket runs the handlers, and ready() calls this again
    }
  }
  if (watched_ != ae::kNone) loop()->remove_file_event(fd_.get(), ae::kReadable | ae::kWritable);
  watched_ = ae::kNone;
}

void SocketCarrier::tell_error() {
  struct Then {  // runs even if a handler throws
    SocketCarrier& carrier;
    ~Then() {
      if (carrier.closing()) return;
      try {
        carrier.announce_error();
      } catch (const std::bad_alloc&) {  // the next read or write still reports it
      }
    }
  } then{*this};
  if (host().wants_read() && host().error_unread() && host().run_read_handler() == Alive::kGone)
    return;
  if (host().wants_write() && host().error_unwritten()) (void)host().run_write_handler();
}

// --- the end -------------------------------------------------------------------------------------

void SocketCarrier::close() noexcept {
  dial_.reset();
  const bool lent = is_lent();
  stop_watching();
  const bool stands =
      fd_ && (state() == State::kConnected ||
              (state() == State::kClosed && (lent || !read_ended_)));  // after shutdown_both()
  if (aborts()) {
    close_socket(true);
  } else if (peer_.is_unix()) {
    close_unix(std::move(fd_));
  } else if (stands && settings_->linger > ae::Duration::zero() &&
             (lent || (!read_ended_ && !closes_clean(fd_.get(), peer_done_)))) {
    try {
      linger_ = std::make_unique<Linger>(*loop(), std::move(fd_), settings_->linger,
                                         lent ? lending_->ledger() : nullptr, [this](Fd fd) {
                                           fd_ = std::move(fd);
                                           close_socket();
                                           host().release();
                                         });
      linger_->start();
      return;
    } catch (const std::bad_alloc&) {  // no memory to linger
      if (linger_) fd_ = linger_->give_back();
      linger_.reset();
    }
  }
  // After the peer's end of stream no input can provoke a reset: the kernel delivers the rest.
  close_socket();
  host().release();
}

bool SocketCarrier::drain(ae::TimePoint until) noexcept {
  if (linger_) return linger_->drain(until);
  if (!fd_ || peer_.is_unix()) return true;  // all output of a Unix socket has been delivered
  if (is_lent()) return deliver(fd_.get(), until, lending_->ledger());
  // After the peer's end of stream the kernel finishes delivery by itself.
  if ((state() != State::kConnected && state() != State::kClosed) || read_ended_) return true;
  return deliver(fd_.get(), until);
}

ae::Duration SocketCarrier::end_linger() const noexcept {
  return std::min(settings_->linger, settings_->end_linger);
}

void SocketCarrier::abandon() noexcept {
  dial_.reset();
  if (linger_) fd_ = linger_->give_back();
  linger_.reset();
  stop_watching();
  if (peer_.is_unix() && !inherited()) close_unix(std::move(fd_));
  close_socket();
}

bool SocketCarrier::leave(ae::EventLoop*) {
  stop_watching();
  return true;
}

// --- facts ---------------------------------------------------------------------------------------

std::string SocketCarrier::local_address() const {
  return fd_ ? local_address_of(fd_.get()).to_string() : std::string();
}

std::string SocketCarrier::peer_address() const {
  if (!peer_.is_unix()) return peer_.get().to_string();
  if (!fd_) return {};
  // A client's Unix socket usually has no name; the listener's path is shown instead.
  std::string name = peer_address_of(fd_.get()).to_string();
  return name.empty() ? local_address_of(fd_.get()).to_string() : name;
}

std::optional<bool> SocketCarrier::is_local() const {
  if (peer_.is_unix()) return true;
  const SocketAddress remote = peer_.get();
  if (remote.size == 0) return std::nullopt;
  if (is_loopback(remote)) return true;
  if (!fd_) return std::nullopt;
  return local_address_of(fd_.get()).same_host(remote);
}

std::vector<std::pair<std::string, std::string>> SocketCarrier::info() const {
  if (!fd_) return {};
  std::vector<std::pair<std::string, std::string>> facts{{"fd", std::to_string(fd_.get())}};
  facts.emplace_back("unsent", std::to_string(unsent_bytes(fd_.get())));
  if (peer_.is_unix()) return facts;
  int nodelay = 0;
  socklen_t size = sizeof nodelay;
  if (getsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &nodelay, &size) == 0) {
    facts.emplace_back("nodelay", nodelay != 0 ? "yes" : "no");
  }
  if (settings_->zero_copy != 0)
    facts.emplace_back("zero-copy", lending_ && lending_->given_up() ? "given up" : "yes");
  return facts;
}

}}}  // namespace conn::tcp
