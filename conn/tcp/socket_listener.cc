// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/socket_listener.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "ae/core/handler_slot.h"
#include "conn/core/arrival_source.h"
#include "conn/core/connection_set.h"
#include "conn/tcp/awaited_headers.h"
#include "conn/tcp/passed_descriptors.h"
#include "conn/tcp/socket_receiver.h"
#include "conn/tcp/trusted_senders.h"
#include "conn/url/coded_failure.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {
namespace {

using namespace std::chrono_literals;

// While descriptors or memory are short the listener retries at these intervals. Pending
// connections stay in the backlog; watching the socket meanwhile would spin, since a failed
// accept() does not remove them.
constexpr ae::Duration kFirstAcceptRetry = 100ms, kLastAcceptRetry = 1s;

// Most connections assumed to wait at a listening socket of the program, whose backlog is unknown.
constexpr std::uint64_t kUnknownBacklog = 65535;

enum class After { kNextOne, kNothingLeft, kRetryLater };

After after_error(int err) noexcept {
  switch (err) {
    case EAGAIN:
#if EWOULDBLOCK != EAGAIN
    case EWOULDBLOCK:
#endif
      return After::kNothingLeft;
    // According to accept(2), these errors belong to the pending connection, not to the listening
    // socket.
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case EPERM:
    case ENETDOWN:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case EOPNOTSUPP:
    case ENETUNREACH:
    case ETIMEDOUT:
      return After::kNextOne;
    // EMFILE, ENFILE, ENOBUFS, ENOMEM, and any other error, which must not make the loop spin
    // either
    default:
      return After::kRetryLater;
  }
}

}  // namespace

/// The part of a SocketListener that may still be running when a handler destroys the listener.
class SocketListener::Acceptor final : public ae::Deferred,
                                       public AwaitedHeaders::Owner,
                                       private LoopEndWatcher,
                                       private ArrivalSource {
 public:
  Acceptor(const SocketType& type, ae::EventLoop& loop, std::shared_ptr<const Settings> settings,
           std::vector<SocketType::Bound> sockets, ListenTo to);
  ~Acceptor() override { stop(); }

  /// Starts accepting. stop() undoes it, even if start() threw halfway.
  void start();
  /// Stops listening for good; no handler runs afterwards.
  void stop() noexcept;
  /// Leaves the loop while the sockets keep listening; start(loop) continues on another loop.
  void leave() noexcept;
  void start(ae::EventLoop& loop);
  void pause() { set_paused(true, false); }
  void hold_back() { set_paused(true, true); }
  void resume() { set_paused(false, false); }
  void on_refused(const RefusedHandler& handler) { refused_.set(handler); }
  ae::EventLoop* loop() const noexcept { return loop_; }
  const std::vector<SocketType::Bound>& sockets() const noexcept { return sockets_; }
  const Quota& quota() const noexcept { return quota_; }

 private:
  void on_loop_end() noexcept override { stop(); }
  void enter(ConnectionSet& set) noexcept;
  void set_paused(bool paused, bool held);
  void watch(bool wanted);
  void watch_headers(bool wanted);
  void begin_accepting() noexcept override;
  Left accept_arrived() override;
  Left accept_batch(std::size_t index);
  Left accept_some(std::size_t index);
  bool is_readable(std::size_t index) const noexcept;
  void take(Accepted socket);
  void header_arrived(Accepted socket) override { take(std::move(socket)); }
  void header_failed(const Failure& why) override;
  void header_lost() noexcept override { ++counters_->accept_errors; }
  // Whether a handler of this listener runs, so that the loop's iteration is nested in the handler.
  bool busy() const noexcept override {
    return accepted_.running() || arrived_.running() || refused_.running();
  }
  void retry_later();
  void report_shortage(std::size_t index, int err);

  const SocketType& type_;
  // the loop that accepts; null once stopped, or while moving to another loop
  ae::EventLoop* loop_;
  LoopCounters* counters_;
  std::shared_ptr<const Settings> settings_;
  std::vector<SocketType::Bound> sockets_;
  const Quota quota_;
  ae::HandlerSlot<void(ConnectionPtr)> accepted_;
  // Receives pending connections (accepted sockets, to be given to one of several loops) if this is
  // a port listener; accepted_ is then empty.
  ae::HandlerSlot<void(PendingConnectionPtr)> arrived_;
  ae::HandlerSlot<void(const Failure&)> refused_;
  // Sockets of proxies whose headers are awaited; null without option proxy-protocol.
  std::unique_ptr<AwaitedHeaders> headers_;
  ae::MadeHere made_here_;
  bool paused_ = false, watched_ = false, stopped_ = false;
  bool held_ = false;  // true if hold_back() has paused the listener
  // True if the program was told that connections cannot be accepted, and they still wait.
  bool shortage_told_ = false;
  std::uint64_t accepted_here_ = 0;  // number of sockets that accept4() has returned
  // A graceful stop accepts connections that have arrived until accepted_here_ has this value.
  std::uint64_t awaited_until_ = 0;
  ae::Duration retry_delay_ = kFirstAcceptRetry;
  ae::TimerId retry_timer_ = 0;
};

SocketListener::Acceptor::Acceptor(const SocketType& type, ae::EventLoop& loop,
                                   std::shared_ptr<const Settings> settings,
                                   std::vector<SocketType::Bound> sockets, ListenTo to)
    : type_(type),
      loop_(&loop),
      counters_(&type.counted_as().counters(loop)),
      settings_(std::move(settings)),
      sockets_(std::move(sockets)),
      quota_(settings_->max_connections) {
  if (to.accepted) accepted_.set(std::move(to.accepted));
  if (to.arrived) arrived_.set(std::move(to.arrived));
  if (settings_->proxies)
    headers_ =
        std::make_unique<AwaitedHeaders>(*this, static_cast<std::size_t>(settings_->backlog));
}

void SocketListener::Acceptor::enter(ConnectionSet& set) noexcept {
  set.add_last(*this);
  set.add(static_cast<ArrivalSource&>(*this));
}

void SocketListener::Acceptor::start() {
  enter(ConnectionSet::of(*loop_));
  watch_headers(true);
  watch(true);
}

void SocketListener::Acceptor::start(ae::EventLoop& loop) {
  loop_ = &loop;
  counters_ = &type_.counted_as().counters(loop);
  enter(ConnectionSet::of(loop));
  watch_headers(!paused_);
  watch(!paused_);
}

void SocketListener::Acceptor::leave() noexcept {
  if (loop_ == nullptr) return;
  watch(false);
  watch_headers(false);
  if (retry_timer_ != 0) loop_->remove_time_event(retry_timer_);
  retry_timer_ = 0;
  stop_watching();
  leave_list();
  loop_ = nullptr;
}

void SocketListener::Acceptor::stop() noexcept {
  if (std::exchange(stopped_, true)) return;
  leave();
  if (headers_) headers_->clear();
  for (SocketType::Bound& socket : sockets_) {
    if (socket.remove) socket.remove();
    if (!made_here_.inherited()) close_listening(std::move(socket.fd), socket.adopted);
    socket.fd.reset();
  }
  // The handlers are destroyed last: their destructors may run any code, which may destroy this
  // object if the loop has ended.
  const auto refused_handler = refused_.take();
  const auto arrived_handler = arrived_.take();
  const auto accepted_handler = accepted_.take();
}

void SocketListener::Acceptor::set_paused(bool paused, bool held) {
  paused_ = paused;
  held_ = held;
  if (loop_ == nullptr) return;
  watch_headers(!paused_);
  watch(!paused_ && retry_timer_ == 0);
}

void SocketListener::Acceptor::watch_headers(bool wanted) {
  if (!headers_) return;
  if (wanted)
    headers_->watch(*loop_);
  else
    headers_->unwatch();
}

void SocketListener::Acceptor::watch(bool wanted) {
  if (wanted == watched_) return;
  std::size_t i = 0;
  try {
    for (; wanted && i < sockets_.size(); ++i)
      loop_->add_file_event(sockets_[i].fd.get(), ae::kReadable | ae::kTrusted,
                            [this, i](int, ae::Mask) { (void)accept_batch(i); });
  } catch (...) {
    while (i-- != 0) loop_->remove_file_event(sockets_[i].fd.get(), ae::kReadable);
    throw;
  }
  watched_ = wanted;
  if (wanted) return;
  for (const SocketType::Bound& socket : sockets_)
    loop_->remove_file_event(socket.fd.get(), ae::kReadable);
}

bool SocketListener::Acceptor::is_readable(std::size_t index) const noexcept {
  pollfd waiting{sockets_[index].fd.get(), POLLIN, 0};
  return ::poll(&waiting, 1, 0) != 0;  // true if poll(2) fails, as it does with RLIMIT_NOFILE 0
}

/// Begins to accept what has arrived before a graceful stop. Accepts at most as many connections as
/// the backlogs of the sockets can hold, so that the stop ends even if further clients connect.
void SocketListener::Acceptor::begin_accepting() noexcept {
  awaited_until_ = accepted_here_;
  for (const SocketType::Bound& socket : sockets_)
    awaited_until_ +=
        socket.backlog_known ? static_cast<std::uint64_t>(settings_->backlog) + 1 : kUnknownBacklog;
}

ArrivalSource::Left SocketListener::Acceptor::accept_arrived() {
  if (made_here_.inherited() || (paused_ && !held_)) return Left::kNothing;
  Left left = Left::kNothing;
  for (std::size_t i = 0; accepted_here_ < awaited_until_ && i < sockets_.size(); ++i) {
    // Without free descriptors accept4(2) fails even if no connection has arrived.
    if (!is_readable(i)) continue;
    // Connections wait while a handler runs, the listener is paused or a retry is planned.
    if (!watched_ || busy()) return Left::kWaits;
    left = std::max(left, accept_batch(i));
    if (loop_ == nullptr) return Left::kNothing;
  }
  return left;
}

/// Accepts what has arrived at one socket, as much as one iteration may. Returns what is left.
ArrivalSource::Left SocketListener::Acceptor::accept_batch(std::size_t index) {
  const Left left = accept_some(index);
  // All connections that had to wait for descriptors or memory have been accepted.
  if (shortage_told_ && loop_ != nullptr && watched_ && !is_readable(index)) shortage_told_ = false;
  return left;
}

ArrivalSource::Left SocketListener::Acceptor::accept_some(std::size_t index) {
  for (unsigned n = 0; n < settings_->accept_batch; ++n) {
    if (n != 0 && !loop_->has_time()) return Left::kMore;
    // Pending connections stay in the backlog until the handler returns.
    if (busy()) return Left::kWaits;
    // A Unix socket, the only kind without a host, accepts nothing while too many passed
    // descriptors wait to be closed.
    if (sockets_[index].endpoint.hosts.empty() && closing_lags()) {
      retry_later();
      return Left::kWaits;
    }
    SocketAddress peer;
    socklen_t size = sizeof peer.storage;
    Fd fd(accept4(sockets_[index].fd.get(), peer.get(), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      const int err = errno;
      const After next = after_error(err);
      if (next == After::kNothingLeft) return Left::kNothing;
      // accept4(2) takes a descriptor before it looks whether a connection has arrived, so it may
      // have failed for lack of descriptors although no connection has arrived.
      if (next == After::kRetryLater && !is_readable(index)) return Left::kNothing;
      if (err != EINTR) ++counters_->accept_errors;
      if (next == After::kNextOne) continue;
      retry_later();
      report_shortage(index, err);
      return Left::kWaits;
    }
    ++accepted_here_;
    peer.size = std::min<socklen_t>(size, sizeof peer.storage);
    if (peer.family() == AF_UNIX) fd = own_unix_socket(fd.release());
    retry_delay_ = kFirstAcceptRetry;
    if (headers_ && settings_->proxies->has(peer))
      headers_->add({std::move(fd), peer});
    else
      take({std::move(fd), peer});
    // The accept handler may have stopped or paused this listener.
    if (loop_ == nullptr || !watched_) return Left::kMore;
  }
  return Left::kMore;
}

void SocketListener::Acceptor::take(Accepted socket) {
  if (!arrived_ && quota_.full()) {
    ++counters_->refused;
    socket.fd.reset();
    if (refused_) refused_.run(quota_.refusal(socket.client_address()));
    return;
  }
  PendingConnectionPtr arrival;
  ConnectionPtr owner;
  try {
    if (arrived_)
      arrival = std::make_unique<SocketPending>(type_, std::move(socket));
    else
      owner = adopt_accepted(type_, *loop_, settings_, std::move(socket), quota_.take());
  } catch (const std::bad_alloc&) {
    // if memory runs out, only the connection being accepted is lost; accepting continues
    ++counters_->accept_errors;
    return;
  }
  if (arrival)
    arrived_.run(std::move(arrival));
  else
    accepted_.run(std::move(owner));
}

void SocketListener::Acceptor::header_failed(const Failure& why) {
  ++counters_->accept_errors;
  if (refused_) refused_.run(why);
}

void SocketListener::Acceptor::retry_later() {
  try {
    retry_timer_ = loop_->add_time_event(retry_delay_, [this] {
      try {
        watch(!paused_);
      } catch (const std::bad_alloc&) {
        return kFirstAcceptRetry;
      }
      retry_timer_ = 0;
      return ae::kNoMore;
    });
  } catch (const std::bad_alloc&) {
    // the timer could not be set: the sockets stay watched, so the next iteration tries again
    return;
  }
  // Stops watching only once the timer is set: nothing else would watch the sockets again.
  watch(false);
  retry_delay_ = std::min(retry_delay_ * 2, kLastAcceptRetry);
}

/// Tells the program's handler of refusals, once until no client waits any more, that clients have
/// to wait because accept4(2) failed with `err`. The handler may destroy the listener.
void SocketListener::Acceptor::report_shortage(std::size_t index, int err) {
  if (!refused_ || std::exchange(shortage_told_, true)) return;
  refused_.run(coded_failure({err, std::generic_category()}, [&] {
    const std::string waits =
        ", so clients of " + sockets_[index].endpoint.to_string() + " wait to be accepted";
    switch (err) {
      case EMFILE:
        return "this process has no descriptors left" + waits + ": raise its limit (ulimit -n)";
      case ENFILE:
        return "this machine has no descriptors left" + waits + ": raise fs.file-max (sysctl)";
      case ENOMEM:
      case ENOBUFS:
        return "the kernel has no memory left" + waits;
      default:
        return errno_text(err) + waits;
    }
  }));
}

SocketListener::SocketListener(const SocketType& type, ae::EventLoop& loop,
                               std::shared_ptr<const Settings> settings,
                               std::vector<SocketType::Bound> sockets, ListenTo to)
    : type_(type),
      acceptor_(std::make_unique<Acceptor>(type, loop, std::move(settings), std::move(sockets),
                                           std::move(to))) {
  acceptor_->start();
}

SocketListener::~SocketListener() {
  ae::EventLoop* const loop = acceptor_->loop();
  acceptor_->stop();
  if (loop != nullptr) loop->destroy_later(std::move(acceptor_));
}

std::vector<Endpoint> SocketListener::endpoints() const {
  std::vector<Endpoint> all;
  for (const SocketType::Bound& socket : acceptor_->sockets()) all.push_back(socket.endpoint);
  return all;
}

void SocketListener::pause() { acceptor_->pause(); }
void SocketListener::hold_back() { acceptor_->hold_back(); }
void SocketListener::resume() { acceptor_->resume(); }
void SocketListener::on_refused(const RefusedHandler& handler) { acceptor_->on_refused(handler); }
std::uint64_t SocketListener::max_connections() const { return acceptor_->quota().most(); }
bool SocketListener::leave(const Handoff*) noexcept {
  acceptor_->leave();
  return true;
}
void SocketListener::arrive(ae::EventLoop& loop) { acceptor_->start(loop); }

}}}  // namespace conn::tcp
