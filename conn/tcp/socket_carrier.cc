// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/socket_carrier.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>

#include "conn/endpoint.h"
#include "conn/setup_trace.h"
#include "conn/tcp/passed_descriptors.h"
#include "conn/tcp/socket_close.h"
#include "conn/tcp/socket_type.h"
#include "conn/tcp/vsock.h"

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
    : Carrier(type), settings_(std::move(settings)) {}

void SocketCarrier::adopt(Accepted socket, Quota::Place place) {
  if (socket.client.size != 0) client_ = std::make_unique<CompactAddress>(socket.client);
  host().occupy(std::move(place));
  fd_ = std::move(socket.fd);
  peer_ = CompactAddress(socket.peer);
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
  // Owns the Dial, which called this function, until this function returns.
  const std::unique_ptr<Dial> dial = std::move(dial_);
  if (result.fd) {
    host().occupy(std::move(result.place));
    fd_ = std::move(result.fd);
    peer_ = CompactAddress(result.peer);
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
  peer_ = CompactAddress(result.peer);
  move_to(State::kConnected);
  interest_changed();
}

// --- data ----------------------------------------------------------------------------------------

ssize_t SocketCarrier::read(void* buffer, std::size_t size) {
  if (fd_.passes_descriptors()) [[unlikely]] {
    const iovec all{buffer, size};
    return receive_without_descriptors(&all, 1);
  }
  const ssize_t n = ::recv(fd_.get(), buffer, size, 0);
  return n > 0 ? n : received_nothing(n);
}

/// Reads from a Unix socket whose peer may pass descriptors, which fail the connection.
ssize_t SocketCarrier::receive_without_descriptors(const iovec* vectors, int count) {
  bool came = false;
  const ssize_t n = receive_without(fd_.get(), vectors, count, 0, came);
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
      if (fd_.passes_descriptors()) [[unlikely]]
        return total > 0 ? total : receive_without_descriptors(vectors, chunk);
      const ssize_t n = receive_some(fd_.get(), vectors, chunk);
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
  const ssize_t n = ::send(fd_.get(), buffer, size, MSG_NOSIGNAL);
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
    const ssize_t n = send_some(fd_.get(), vectors, chunk);
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

/// Marks the connection as failed and returns -1 with `err` in errno. Unread input is kept: if a
/// write finds a reset, the kernel still has what the peer sent before the reset. The kernel
/// reports a failure only once, so it is recorded even without memory for its text.
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
  } catch (const std::bad_alloc&) {
    // If memory runs out the error is not announced, but the next read or write reports it.
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
  if (::shutdown(fd_.get(), how) != 0) {
    const int err = errno;
    if (err != ENOTCONN) return -1;
    // Here shutdown(2) fails with ENOTCONN, which means that the peer's reset has already arrived.
    return static_cast<int>(failed(ECONNRESET, "shutdown towards "));
  }
  write_ended_ = true;
  if (read_ended_) move_to(State::kClosed);
  return 0;
}

bool SocketCarrier::wait_for(ae::Mask direction, ae::TimePoint deadline) {
  const short events = direction == ae::kReadable ? POLLIN : POLLOUT;
  bool ready;
  do {  // repeated as long as zero-copy completions arrive, since poll(2) returns for them, too
    ready = poll_until(fd_.get(), events, deadline);
  } while (take_completions());
  return ready;
}

// --- zero-copy -----------------------------------------------------------------------------------

// Memory lent to the kernel comes back with the completions or when the socket is closed. In the
// latter case the socket is reset, because the kernel would otherwise continue to read the memory.

bool SocketCarrier::sends_in_place(const Outgoing& bytes) const noexcept {
  // Only with option linger: without it the kernel delivers output by itself after close(), and it
  // cannot do that from memory that belongs to the caller again.
  return settings_->zero_copy != 0 && bytes.bytes.size() >= settings_->zero_copy &&
         !(lending_ && lending_->given_up()) && settings_->linger > ae::Duration::zero();
}

ssize_t SocketCarrier::send(const Outgoing& bytes) {
  const bool goes_on = lending_ && lending_->goes_on();
  if (!goes_on) {
    bool begun = false;
    try {
      if (sends_in_place(bytes)) {
        if (!lending_) lending_ = std::make_unique<ZeroCopySender>();
        const bool was_active = lending_->active();
        begun = lending_->begin(fd_.get());
        if (begun && !was_active) watch_aside();
      }
    } catch (const std::bad_alloc&) {
      // Without watch_aside() the kernel's zero-copy completions would go unnoticed, so send() must
      // copy.
      if (lending_) lending_->give_up();
      if (lending_) (void)lending_->end_if_idle();
      begun = false;
    }
    if (!begun) {
      errno = EOPNOTSUPP;
      return -1;
    }
  }
  bool all_done = false;
  const ssize_t n = lending_->send(fd_.get(), bytes.bytes, all_done);
  if (n < 0) {
    const int err = errno;
    if (err != EAGAIN && err != EWOULDBLOCK) return failed(err, "write to ");
    errno = EAGAIN;
    return -1;
  }
  if (all_done) tell_done();
  return n;
}

/// Reads the kernel's zero-copy completions. Returns true if there were any.
bool SocketCarrier::take_completions() noexcept {
  if (!lending_ || !lending_->take_completions(fd_.get())) return false;
  tell_done();
  return true;
}

void SocketCarrier::tell_done() noexcept {
  if (!lending_ || !lending_->active()) return;
  // the rest of the reference will never be sent
  if (state() != State::kConnected || closing()) lending_->stop();
  if (const std::size_t count = lending_->take_done(); count != 0) {
    std::error_code why;
    if (is_cut(fd_.get()))
      why = host().failure().code ? host().failure().code
                                  : std::make_error_code(std::errc::connection_reset);
    host().references_done(count, why);
  }
  if (!lending_->end_if_idle()) return;
  try {
    if (side_ && side_->watched() != SocketEvents::kNothing && loop() != nullptr) watch_aside();
  } catch (const std::bad_alloc&) {  // cannot happen: requesting fewer events needs no memory
  }
}

/// Returns whether the kernel may still read memory that send() lent to it.
bool SocketCarrier::is_lent() noexcept {
  if (!lending_ || !lending_->active() || !fd_) return false;
  (void)take_completions();
  // the peer has acknowledged all bytes, so the kernel never sends them again
  if (unsent_bytes(fd_.get()) == 0) lending_->acknowledged();
  tell_done();
  return lending_->is_lent();
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
      // nothing to request while connecting; dialed() calls this function again once connected
      break;
  }
}

void SocketCarrier::watch(ae::Mask wanted) {
  constexpr ae::Mask kWriting = ae::kWritable | ae::kBarrier;
  if (wanted == watched_) return;
  if ((wanted & ae::kReadable) != (watched_ & ae::kReadable)) {
    if ((wanted & ae::kReadable) != 0) {
      loop()->add_file_event(fd_.get(), ae::kReadable | ae::kTrusted,
                             [this](int, ae::Mask) { readable(); });
    } else {
      loop()->remove_file_event(fd_.get(), ae::kReadable);
    }
    // Recorded before the code below, which may throw.
    watched_ = (watched_ & kWriting) | (wanted & ae::kReadable);
  }
  if ((wanted & kWriting) != (watched_ & kWriting)) {
    if ((watched_ & ae::kWritable) != 0) loop()->remove_file_event(fd_.get(), kWriting);
    watched_ = watched_ & ae::kReadable;
    if ((wanted & ae::kWritable) != 0) {
      loop()->add_file_event(fd_.get(), (wanted & kWriting) | ae::kTrusted,
                             [this](int, ae::Mask) { writable(); });
    }
  }
  watched_ = wanted;
}

/// Registers with SocketEvents for the events that file events do not report: the peer's close, if
/// a handler wants it, and errors, during zero-copy sending. Cancels what is no longer needed.
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
  // Reading SO_ERROR has cleared the error, so it must be reported here: no later call finds it.
  (void)carrier.failed(err, "connection to ");
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

/// The part of readable() (POLLIN) and writable() (POLLOUT) for a socket that is not plain.
[[gnu::noinline]] void SocketCarrier::run_if_ready(short event) {
  if (!is_ready(event)) return;
  const Alive alive = event == POLLIN ? host().run_read_handler() : host().run_write_handler();
  if (alive == Alive::kYes && state() == State::kError) announce_error();
}

/// Whether the socket is really readable or writable, as its event says. A socket with zero-copy
/// sending wakes the loop also for completions, as if it were readable and writable.
bool SocketCarrier::is_ready(short event) noexcept {
  (void)take_completions();
  if (!lending_ || !lending_->had_completions()) return true;
  pollfd entry{fd_.get(), event, 0};
  return ::poll(&entry, 1, 0) != 0;
}

void SocketCarrier::stop_watching() {
  if (loop() == nullptr) return;
  if (side_) side_->leave();
  if (watched_ != ae::kNone) loop()->remove_file_event(fd_.get(), ae::kReadable | ae::kWritable);
  watched_ = ae::kNone;
  if (error_timer_ != 0) loop()->remove_time_event(error_timer_);
  error_timer_ = 0;
}

/// Makes the handlers run for a failure of the connection. A failed socket stays readable and
/// writable, so it is no longer watched. Instead, a timer runs the handlers until they have
/// collected the error. So the loop does not spin if the program closes the connection late.
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
      // The socket is still watched: its next event runs the handlers, and readable() or writable()
      // then calls this function again.
      return;
    }
  }
  if (watched_ != ae::kNone) loop()->remove_file_event(fd_.get(), ae::kReadable | ae::kWritable);
  watched_ = ae::kNone;
}

void SocketCarrier::tell_error() {
  struct Then {  // its destructor, which announces the error, runs even if a handler throws
    SocketCarrier& carrier;
    ~Then() {
      if (carrier.closing()) return;
      try {
        carrier.announce_error();
      } catch (const std::bad_alloc&) {
        // If memory runs out the error is not announced, but the next read or write reports it.
      }
    }
  } then{*this};
  if (host().wants_read() && host().error_unread() && host().run_read_handler() == Alive::kGone)
    return;
  if (host().wants_write() && host().error_unwritten()) (void)host().run_write_handler();
}

// --- the end of the connection -------------------------------------------------------------------

void SocketCarrier::close() noexcept {
  dial_.reset();
  const bool lent = is_lent();
  stop_watching();
  // Whether there may be output to deliver or input to read. That is possible in state kClosed,
  // too, after shutdown_both().
  const bool stands = fd_ && (state() == State::kConnected ||
                              (state() == State::kClosed && (lent || !read_ended_)));
  if (aborts()) {
    close_socket(true);
  } else if (stands && is_inet() && settings_->linger > ae::Duration::zero() &&
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
    } catch (const std::bad_alloc&) {  // without memory for the Linger, closes the socket at once
      if (linger_) fd_ = linger_->give_back();
      linger_.reset();
    }
  }
  // The peer has ended its stream, so no input can provoke a reset, and the kernel delivers the
  // rest of the output by itself.
  close_socket();
  host().release();
}

/// Closes the socket so that the kernel no longer reads lent memory. With `reset`, a tcp peer gets
/// a reset, and a vsock peer gets none; a unix peer gets one only if input is unread here, since
/// the kernel offers no other way.
void SocketCarrier::close_socket(bool reset) noexcept {
  if (reset && is_unix()) return fd_.abort_unix();
  if (reset && fd_ && is_inet() && !inherited()) reset_when_closed(fd_.get());
  if (is_lent() && lending_->is_ours()) reset_when_closed(fd_.get());
  fd_.reset();
}

bool SocketCarrier::drain(ae::TimePoint until) noexcept {
  if (linger_) return linger_->drain(until);
  // output of a Unix socket has been delivered once it is written, and that of vsock fits into the
  // peer's buffer
  if (!fd_ || !is_inet()) return true;
  if (is_lent()) return deliver(fd_.get(), until, lending_->ledger());
  // After the peer's end of stream there is nothing to wait for: the kernel finishes delivery by
  // itself.
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
  close_socket(aborts());
}

bool SocketCarrier::leave(ae::EventLoop*) {
  stop_watching();
  return true;
}

int SocketCarrier::release_descriptor() noexcept {
  // The kernel reports on lent memory through the socket; an idle time-out needs the loop.
  if (lending_ || settings_->idle_timeout != ae::Duration::zero()) return -1;
  const int flags = ::fcntl(fd_.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd_.get(), F_SETFL, flags & ~O_NONBLOCK) != 0) return -1;
  stop_watching();
  if (fd_.is_unix()) make_ordinary(fd_.get());
  return fd_.release();
}

// --- facts about the connection ------------------------------------------------------------------

std::string SocketCarrier::local_address() const { return local_sockaddr().to_string(); }

SocketAddress SocketCarrier::local_sockaddr() const noexcept {
  if (!fd_) return {};
  SocketAddress local = local_address_of(fd_.get());
  if (is_vsock()) set_own_cid(local, peer_address_of(fd_.get()));
  return local;
}

SocketAddress SocketCarrier::peer_sockaddr() const noexcept {
  if (client_) return client_->get();
  if (is_inet()) return peer_.get();
  return fd_ ? peer_address_of(fd_.get()) : SocketAddress{};
}

std::string SocketCarrier::peer_address() const {
  return client_ ? client_->get().to_string() : socket_peer_address();
}

/// Returns the address of the other end of the socket.
std::string SocketCarrier::socket_peer_address() const {
  if (is_inet()) return peer_.get().to_string();
  if (!fd_) return {};
  // A client's Unix socket usually has no name, so the listener's path is shown instead.
  std::string name = peer_address_of(fd_.get()).to_string();
  return name.empty() ? local_address_of(fd_.get()).to_string() : name;
}

std::optional<bool> SocketCarrier::is_local() const {
  // A loopback address of the client may be an address of the proxy's machine.
  if (client_) return std::nullopt;
  if (is_unix()) return true;
  if (is_vsock()) return fd_ ? is_same_machine(fd_.get()) : std::nullopt;
  const SocketAddress remote = peer_.get();
  if (remote.size == 0) return std::nullopt;
  if (is_loopback(remote)) return true;
  if (!fd_) return std::nullopt;
  return local_address_of(fd_.get()).same_host(remote);
}

std::optional<PeerCredentials> SocketCarrier::peer_credentials() const {
  // Behind a proxy these credentials would be the proxy's, not the client's.
  return is_unix() && fd_ && !client_ ? credentials_of(fd_.get()) : std::nullopt;
}

std::vector<std::pair<std::string, std::string>> SocketCarrier::info() const {
  if (!fd_) return {};
  std::vector<std::pair<std::string, std::string>> facts{{"fd", std::to_string(fd_.get())}};
  facts.emplace_back("unsent", std::to_string(unsent_bytes(fd_.get())));
  if (client_) facts.emplace_back("proxy", printable(socket_peer_address()));
  if (is_unix()) {
    if (!client_) add_credentials(fd_.get(), facts);
    return facts;
  }
  if (!is_inet()) return facts;
  int nodelay = 0;
  socklen_t size = sizeof nodelay;
  if (getsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &nodelay, &size) == 0) {
    facts.emplace_back("nodelay", nodelay != 0 ? "yes" : "no");
  }
  if (settings_->mptcp) facts.emplace_back("mptcp", speaks_mptcp(fd_.get()) ? "yes" : "plain TCP");
  if (settings_->zero_copy != 0)
    facts.emplace_back("zero-copy", lending_ && lending_->given_up() ? "given up" : "yes");
  return facts;
}

}}}  // namespace conn::tcp
