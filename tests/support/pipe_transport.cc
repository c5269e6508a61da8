// SPDX-License-Identifier: BSD-3-Clause
#include "tests/support/pipe_transport.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "ae/core/fork.h"
#include "conn/core/acceptor_base.h"
#include "conn/core/make_connection.h"
#include "conn/core/queued_loop.h"
#include "conn/kit/defaults.h"
#include "conn/kit/descriptor.h"
#include "conn/kit/interruption.h"
#include "conn/spi/queued_carrier.h"

namespace pipes {

using namespace conn;

namespace {

// --- how the ends find each other ----------------------------------------------------------------

/// The address of the Unix socket at the endpoint's path.
sockaddr_un address_of(const Endpoint& endpoint) noexcept {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  endpoint.path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

Descriptor open_socket() noexcept {
  return Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/// What one end of a connection reads from, and writes to.
struct Ends {
  Descriptor in, out;
};

/// A message of one byte and two descriptors, for sendmsg(2) and recvmsg(2).
struct Message {
  Message() noexcept {
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    header.msg_control = space;
    header.msg_controllen = sizeof space;
  }
  char byte = 0;
  iovec piece{&byte, 1};
  alignas(cmsghdr) char space[CMSG_SPACE(2 * sizeof(int))]{};
  msghdr header{};
};

/// Makes the two pipes of a connection. Returns false with errno.
bool make_ends(Ends& ours, Ends& theirs) noexcept {
  for (Ends* const reader : {&ours, &theirs}) {
    int made[2];
    if (::pipe2(made, O_CLOEXEC | O_NONBLOCK) != 0) return false;
    reader->in = Descriptor(made[0]);
    (reader == &ours ? theirs : ours).out = Descriptor(made[1]);
  }
  return true;
}

/// Passes an end to the client. Returns false with errno.
bool send_end(const Descriptor& socket, const Ends& end) noexcept {
  Message message;
  const std::array<int, 2> fds{end.in.get(), end.out.get()};
  cmsghdr* const control = CMSG_FIRSTHDR(&message.header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof fds);
  std::memcpy(CMSG_DATA(control), fds.data(), sizeof fds);
  return ::sendmsg(socket.get(), &message.header, MSG_NOSIGNAL) == 1;
}

/// Receives the end that the listener passes. Returns 0; or the errno value of the failure, EAGAIN
/// if it has not come yet.
int receive_end(const Descriptor& socket, Ends& end) noexcept {
  Message message;
  const ssize_t n = ::recvmsg(socket.get(), &message.header, MSG_CMSG_CLOEXEC);
  if (n < 0) return errno;
  std::array<int, 2> fds{-1, -1};
  if (const cmsghdr* const control = CMSG_FIRSTHDR(&message.header))
    std::memcpy(fds.data(), CMSG_DATA(control), control->cmsg_len - CMSG_LEN(0));
  end.in = Descriptor(fds[0]);
  end.out = Descriptor(fds[1]);
  return end.in && end.out ? 0 : n == 0 ? ECONNREFUSED : EMFILE;
}

/// What the type keeps for one loop.
using PipeLoop = QueuedLoop<>;

// --- connections ---------------------------------------------------------------------------------

class PipeCarrier final : public QueuedCarrier {
 public:
  explicit PipeCarrier(PipeLoop& shared) : QueuedCarrier(shared.type, shared.ready) {}
  /// Establishes the connection.
  void attach(Ends ends) {
    ends_ = std::move(ends);
    move_to(State::kConnected);
    changed();
  }
  void attach_accepted(Ends ends, const std::string& path, Quota::Place place) {
    host().occupy(std::move(place));
    local_ = path;
    attach(std::move(ends));
  }

 private:
  void connect(const Endpoint& to) override {
    give_up_ = ae::TimePoint::clock::now() +
               static_cast<const PipeType&>(type()).settings(to.options).connect_timeout;
    peer_ = to.path;
    address_ = address_of(to);
    socket_ = open_socket();
    go_on();
    if (state() == State::kConnecting)
      timer_ = loop()->add_time_event(kRetry, [this] {
        go_on();
        return state() == State::kConnecting ? kRetry : ae::kNoMore;
      });
  }
  void connect_blocking(const Endpoint& to, ae::TimePoint deadline) override {
    connect(to);
    for (ae::TimePoint now; state() == State::kConnecting && !Interruption::ends(); go_on()) {
      if ((now = ae::TimePoint::clock::now()) >= deadline) return;
      (void)poll_until(asked_ ? socket_.get() : -1, POLLIN, std::min(deadline, now + kRetry));
    }
  }
  /// Connects, as far as that is possible now.
  void go_on() {
    if (state() != State::kConnecting) return;
    Ends ends;
    int error = ask(ends);
    if (error == EAGAIN && ae::TimePoint::clock::now() < give_up_) return changed();
    if (error == EAGAIN) error = ETIMEDOUT;
    stop_connecting();
    if (error == 0) return attach(std::move(ends));
    fail(errno_failure(error, "connect to " + peer_));
    changed();
  }
  /// Returns 0 or an errno value; EAGAIN: the backlog is full, or the listener has not answered.
  int ask(Ends& ends) {
    const auto* const to = reinterpret_cast<const sockaddr*>(&address_);
    if (!asked_ && ::connect(socket_.get(), to, sizeof address_) != 0) return errno;
    asked_ = true;
    return receive_end(socket_, ends);
  }
  void stop_connecting() noexcept {
    drop(socket_);
    if (loop() != nullptr) loop()->remove_time_event(timer_);
  }

  bool readable() const override { return poll_now(ends_.in.get(), POLLIN); }
  bool writable() const override { return !ends_.out || poll_now(ends_.out.get(), POLLOUT); }
  ssize_t read(void* buffer, std::size_t size) override;
  ssize_t writev(const iovec* vectors, int count) override;
  bool wait_for(ae::Mask direction, ae::TimePoint deadline) override {
    if (direction == ae::kReadable) return poll_until(ends_.in.get(), POLLIN, deadline);
    return !ends_.out || poll_until(ends_.out.get(), POLLOUT, deadline);
  }
  void interest_changed() override { changed(); }
  int shutdown() override {
    drop(ends_.out);
    if (end_was_read_ && state() == State::kConnected) move_to(State::kClosed);
    changed();
    return 0;
  }
  void close() noexcept override {
    abandon();
    host().release();
  }
  void abandon() noexcept override;

  std::string local_address() const override { return local_; }
  std::string peer_address() const override { return peer_; }
  std::optional<bool> is_local() const override { return true; }
  std::string peer() const { return peer_.empty() ? "a client of " + local_ : peer_; }

  /// Whether the peer has closed its end, and left bytes unread.
  bool cut() const noexcept {
    int unread = 0;
    return poll_now(ends_.out.get(), 0) && ::ioctl(ends_.out.get(), FIONREAD, &unread) == 0 &&
           unread > 0;
  }
  static ssize_t refuse(int error) noexcept { return errno = error, -1; }
  /// Finds out what has changed, and watches for what is wanted now.
  void changed();
  void watch(const Descriptor& fd, ae::Mask direction, bool wanted);
  void drop(Descriptor& fd) {
    if (fd && loop() != nullptr) loop()->remove_file_event(fd.get(), ae::kReadable | ae::kWritable);
    fd = Descriptor();
  }

  static constexpr ae::Duration kRetry = std::chrono::milliseconds(10);
  // While it connects:
  Descriptor socket_;
  sockaddr_un address_{};
  bool asked_ = false;  // the socket is connected, and the listener has to answer
  ae::TimePoint give_up_;
  ae::TimerId timer_ = 0;
  // While it is connected:
  Ends ends_;
  std::string local_, peer_;
  bool end_was_read_ = false;
};

void PipeCarrier::changed() {
  const bool live = state() == State::kConnected && !closing();
  const bool gone = live && poll_now(ends_.in.get(), 0);  // hung up
  if (gone) host().peer_gone();
  if (gone && cut()) {
    fail(errno_failure(ECONNRESET, "read from " + peer()));
    host().keep_unread();
    return changed();
  }
  watch(socket_, ae::kReadable, state() == State::kConnecting && asked_);
  watch(ends_.in, ae::kReadable, live && host().wants_read());
  watch(ends_.out, ae::kWritable, live && host().wants_write());
  // Of a pipe's end, the opposite direction announces only that the other end is gone.
  const bool wants_close = live && host().wants_close();
  watch(ends_.in, ae::kWritable, wants_close && !gone);
  watch(ends_.out, ae::kReadable, wants_close && gone && !poll_now(ends_.out.get(), 0));
  update_ready();
}

void PipeCarrier::watch(const Descriptor& fd, ae::Mask direction, bool wanted) {
  if (!fd || loop() == nullptr) return;
  const bool watched = (loop()->file_events(fd.get()) & direction) != 0;
  if (wanted && !watched)
    loop()->add_file_event(fd.get(), direction | ae::kTrusted, [this](int, ae::Mask) {
      state() == State::kConnecting ? go_on() : changed();
    });
  if (!wanted && watched) loop()->remove_file_event(fd.get(), direction);
}

ssize_t PipeCarrier::read(void* buffer, std::size_t size) {
  const ssize_t n = ::read(ends_.in.get(), buffer, size);
  if (n > 0) return n;
  if (n == 0) changed();  // finds out whether the peer has left bytes unread
  if (state() == State::kError) return host().no_more_unread();
  if (n < 0) return refuse(EAGAIN);
  end_was_read_ = true;
  if (!ends_.out) move_to(State::kClosed);
  return 0;
}

ssize_t PipeCarrier::writev(const iovec* vectors, int count) {
  if (!ends_.out) return refuse(EPIPE);
  std::span<const iovec> parts(vectors, static_cast<std::size_t>(count));
  while (parts.front().iov_len == 0) parts = parts.subspan(1);
  const ssize_t n = write_without_signal(ends_.out.get(),
                                         parts.first(std::min<std::size_t>(parts.size(), IOV_MAX)));
  if (n >= 0 || errno == EAGAIN) return n;
  const int error = errno;
  fail(errno_failure(error, "write to " + peer()));
  host().keep_unread();
  changed();
  return refuse(error);
}

void PipeCarrier::abandon() noexcept {
  detach_list();
  stop_connecting();
  // What is unread tells the peer of an abort. A child of fork() leaves it to its parent.
  char unread[4096];
  if (ends_.in && !aborts() && !inherited())
    for (int i = 0; i < 1000 && ::read(ends_.in.get(), unread, sizeof unread) > 0; ++i) continue;
  drop(ends_.in);  // first, so that the peer that sees the end also sees what was left unread
  drop(ends_.out);
}

// --- the listener --------------------------------------------------------------------------------

/// The socket of a client that has no pipes yet.
struct PipePending final : PendingConnection {
  explicit PipePending(Descriptor its_socket) noexcept : socket(std::move(its_socket)) {}
  std::string peer() const override { return {}; }
  const Descriptor socket;
};

class PipeAcceptor final : public AcceptorBase {
 public:
  PipeAcceptor(PipeLoop& shared, const Endpoint& at, const Settings& settings,
               AcceptHandler accepted)
      : AcceptorBase(shared.type, shared.ready, 1, std::move(accepted)),
        shared_(shared),
        endpoint_(at) {
    const sockaddr_un address = address_of(at);
    if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(socket_.get(), settings.backlog) != 0)
      throw errno_error(errno, "listen on " + at.to_string());
    limit(settings.most);
    set_listening(true);
  }
  std::vector<Endpoint> endpoints() const override { return {endpoint_}; }

 private:
  void set_listening(bool wanted) override {
    loop().remove_time_event(std::exchange(rest_, 0));
    loop().remove_file_event(socket_.get(), ae::kReadable);
    if (wanted)
      loop().add_file_event(socket_.get(), ae::kReadable | ae::kTrusted,
                            [this](int, ae::Mask) { accept(); });
  }
  void on_stop(bool) noexcept override {
    set_listening(false);
    socket_ = Descriptor();
    if (!made_here_.inherited()) ::unlink(endpoint_.path.c_str());
  }
  void accept() {
    if (busy()) return;  // this iteration is nested in a handler
    Descriptor socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) return arrive(std::make_unique<PipePending>(std::move(socket)));
    if (errno == EAGAIN) return;
    lost();
    // Accepts nothing for a while: the socket stays ready as long as there are no descriptors.
    set_listening(false);
    rest_ = loop().add_time_event(std::chrono::milliseconds(100), [this] {
      set_listening(true);
      return ae::kNoMore;
    });
  }
  void begin(PendingConnectionPtr arrival) override {
    Ends ours, theirs;
    if (!make_ends(ours, theirs) ||
        !send_end(static_cast<const PipePending&>(*arrival).socket, theirs))
      return lost();
    auto [connection, carrier] = make_connection<PipeCarrier>(loop(), shared_);
    carrier.attach_accepted(std::move(ours), endpoint_.path, std::move(arrival->place));
    arrival.reset();
    hand_over(std::move(connection));
  }

  PipeLoop& shared_;
  const Endpoint endpoint_;
  const ae::MadeHere made_here_;
  Descriptor socket_ = open_socket();
  ae::TimerId rest_ = 0;
};

}  // namespace

// --- the type ------------------------------------------------------------------------------------

Settings PipeType::settings(const Options& options) const {
  const Options all = defaults_.merged_with(options);
  all.only("pipe", {"backlog", "connect-timeout", "max-connections"});
  return {all.number("max-connections", Quota::kDefault, 1, Quota::kMost),
          static_cast<int>(all.number("backlog", defaults::kBacklog, 1, INT_MAX)),
          all.duration("connect-timeout", defaults::kConnectTimeout, std::chrono::milliseconds(1),
                       std::chrono::hours(24))};
}

void PipeType::configure(const Options& options) {
  (void)settings(options);
  defaults_ = options;
}

void PipeType::check(const Endpoint& endpoint) const {
  const std::string& path = endpoint.path;
  if (!path.starts_with('/') || path.size() >= sizeof(sockaddr_un::sun_path) ||
      path.find('\0') != path.npos || !endpoint.hosts.empty())
    throw Error(endpoint.to_string() + ": pipe needs the path of a socket: pipe:///run/kv");
  (void)settings(endpoint.options);
}

ListenerPtr PipeType::listen(ae::EventLoop& loop, const Endpoint& endpoint,
                             AcceptHandler accepted) const {
  check(endpoint);
  return std::make_unique<AcceptingListener>(AcceptorPtr<>(new PipeAcceptor(
      PipeLoop::of(*this, loop), endpoint, settings(endpoint.options), std::move(accepted))));
}

ConnectionPtr PipeType::create(ae::EventLoop& loop) const {
  return make_connection<PipeCarrier>(loop, PipeLoop::of(*this, loop)).first;
}

}  // namespace pipes
