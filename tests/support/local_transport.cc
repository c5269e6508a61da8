// SPDX-License-Identifier: BSD-3-Clause
#include "tests/support/local_transport.h"

#include <array>
#include <cerrno>
#include <ctime>
#include <map>

#include "conn/core/acceptor_base.h"
#include "conn/core/make_connection.h"
#include "conn/core/queued_loop.h"
#include "conn/spi/queued_carrier.h"

namespace local {

using namespace conn;

/// What the type keeps for one loop: the listeners by name, besides what QueuedLoop has.
using LocalLoop = QueuedLoop<std::map<std::string, class LocalAcceptor*>>;

/// One direction of a link.
struct Pipe {
  std::size_t room() const { return (std::size_t{64} << 10) - data.size(); }
  std::string data;                          // written and not read yet
  bool finished = false, abandoned = false;  // nothing more is written; nothing more is read
};

/// Joins two ends. Both own it: bytes can be read after the end that wrote them was closed.
struct Link {
  void reset(const std::string& why) {
    broken = errno_failure(ECONNRESET, why);
    tell_ends();
  }
  void tell_ends() noexcept;
  std::array<Pipe, 2> pipes;                  // [i] is written by end i
  std::array<class LocalCarrier*, 2> ends{};  // client, server; null before accept, after close
  std::array<std::string, 2> names;
  Failure broken;  // once it is reset
};

class LocalCarrier final : public QueuedCarrier {
 public:
  explicit LocalCarrier(LocalLoop& shared)
      : QueuedCarrier(shared.type, shared.ready), shared_(shared) {}
  /// Makes this carrier one end of the link.
  void attach(std::shared_ptr<Link> link, std::size_t side, Quota::Place place = nullptr) {
    host().occupy(std::move(place));
    link_ = std::move(link);
    side_ = side;
    link_->ends[side_] = this;
    move_to(State::kConnected);
    link_changed();
  }
  void link_changed() noexcept {
    if (link_->broken) fail(link_->broken);
    if (state() == State::kError && !in().data.empty()) host().keep_unread();
    if (in().finished) host().peer_gone();
    if (end_was_read_ && out().finished && state() == State::kConnected) move_to(State::kClosed);
    update_ready();
  }

 private:
  Pipe& in() const { return link_->pipes[1 - side_]; }
  Pipe& out() const { return link_->pipes[side_]; }
  void connect(const Endpoint& to) override;
  void connect_blocking(const Endpoint& to, ae::TimePoint) override { connect(to); }
  bool readable() const override { return !in().data.empty() || (in().finished && !link_->broken); }
  bool writable() const override { return out().room() > 0 || out().finished || out().abandoned; }
  ssize_t read(void* buffer, std::size_t size) override {
    if (!readable()) return state() == State::kError ? host().no_more_unread() : refuse(EAGAIN);
    const std::size_t n = in().data.copy(static_cast<char*>(buffer), size);
    in().data.erase(0, n);
    end_was_read_ = n == 0;
    link_->tell_ends();
    return static_cast<ssize_t>(n);
  }
  ssize_t writev(const iovec* vectors, int count) override {
    if (out().finished) return refuse(EPIPE);
    if (out().abandoned) return link_->reset("write to " + peer_address()), refuse(ECONNRESET);
    if (out().room() == 0) return refuse(EAGAIN);
    const std::size_t before = out().data.size();
    for (int i = 0; i < count; ++i)
      out().data.append(static_cast<const char*>(vectors[i].iov_base),
                        std::min(vectors[i].iov_len, out().room()));
    link_->tell_ends();
    return static_cast<ssize_t>(out().data.size() - before);
  }
  static ssize_t refuse(int error) noexcept { return errno = error, -1; }
  bool wait_for(ae::Mask direction, ae::TimePoint deadline) override {
    if (direction == ae::kReadable ? readable() : writable()) return true;
    // Nothing can change: the peer is on this thread. sleep_until() would not end while signals
    // arrive faster than it can go to sleep.
    const timespec once{0, 1'000'000};
    while (ae::TimePoint::clock::now() < deadline) nanosleep(&once, nullptr);
    return false;
  }

  int shutdown() override {
    out().finished = true;
    link_->tell_ends();
    return 0;
  }
  void close() noexcept override {
    abandon();
    host().release();
  }
  void abandon() noexcept override {
    detach_list();
    if (!link_) return;
    link_->ends[side_] = nullptr;
    if (aborts()) link_->reset("the peer aborted the connection");
    out().finished = in().abandoned = true;
    link_->tell_ends();
  }

  std::string local_address() const override { return link_ ? link_->names[side_] : ""; }
  std::string peer_address() const override { return link_ ? link_->names[1 - side_] : ""; }
  std::optional<bool> is_local() const override { return true; }

  LocalLoop& shared_;
  std::shared_ptr<Link> link_;
  std::size_t side_ = 0;
  bool end_was_read_ = false;
};

void Link::tell_ends() noexcept {
  for (LocalCarrier* const end : ends)
    if (end != nullptr) end->link_changed();
}

/// The link of a client that is not accepted yet.
struct LocalPending final : PendingConnection {
  explicit LocalPending(const std::shared_ptr<Link>& its_link) : link(its_link) {}
  ~LocalPending() override {
    if (link) link->reset("the listener is gone");
  }
  std::string peer() const override { return link->names[0]; }
  void refuse(std::string_view why) noexcept override { link->reset(std::string(why)); }
  std::shared_ptr<Link> link;
};

class LocalAcceptor final : public AcceptorBase {
 public:
  LocalAcceptor(LocalLoop& shared, const Endpoint& at, AcceptHandler accepted)
      : AcceptorBase(shared.type, shared.ready, 1, std::move(accepted)), shared_(shared), at_(at) {
    if (!shared.own.emplace(name(), this).second)
      throw errno_error(EADDRINUSE, "listen on " + at.to_string());
  }
  void connected(LocalCarrier& client) {
    const auto link = std::make_shared<Link>();
    link->names = {name() + "#client", name()};
    client.attach(link, 0);
    arrive_later(std::make_unique<LocalPending>(link));
  }
  std::vector<Endpoint> endpoints() const override { return {at_}; }

 private:
  void begin(PendingConnectionPtr arrival) override {
    const std::shared_ptr<Link> link = std::move(static_cast<LocalPending&>(*arrival).link);
    if (link->broken) return lost();  // the client was aborted
    auto [connection, carrier] = make_connection<LocalCarrier>(loop(), shared_);
    carrier.attach(link, 1, std::move(arrival->place));
    arrival.reset();
    hand_over(std::move(connection));
  }
  void on_stop(bool loop_ends) noexcept override {
    shared_.own.erase(name());
    // The clients are on this loop, and end with it.
    while (const PendingConnectionPtr one = loop_ends ? give_back() : nullptr)
      static_cast<LocalPending&>(*one).link.reset();
  }
  const std::string& name() const noexcept { return at_.hosts.front().name; }

  LocalLoop& shared_;
  const Endpoint at_;
};

void LocalCarrier::connect(const Endpoint& to) {
  const auto found = shared_.own.find(to.hosts.front().name);
  if (found != shared_.own.end()) return found->second->connected(*this);
  fail(errno_failure(ECONNREFUSED, "connect to " + to.to_string()));
  update_ready();
}

/// The option max-connections; throws Error for other options.
std::uint64_t most_connections(const Options& options) {
  options.only("local", {"max-connections"});
  return options.number("max-connections", Quota::kDefault, 1, Quota::kMost);
}

void LocalType::configure(const Options& options) {
  (void)most_connections(options);
  defaults_ = options;
}

void LocalType::check(const Endpoint& endpoint) const {
  if (endpoint.hosts.size() != 1 || !endpoint.no_port)
    throw Error(endpoint.to_string() + ": a local address is one name: local://name");
  (void)most_connections(endpoint.options);
}

ListenerPtr LocalType::listen(ae::EventLoop& loop, const Endpoint& endpoint,
                              AcceptHandler accepted) const {
  check(endpoint);
  AcceptorPtr<> acceptor(
      new LocalAcceptor(LocalLoop::of(*this, loop), endpoint, std::move(accepted)));
  acceptor->limit(most_connections(defaults_.merged_with(endpoint.options)));
  return std::make_unique<AcceptingListener>(std::move(acceptor));
}

ConnectionPtr LocalType::create(ae::EventLoop& loop) const {
  return make_connection<LocalCarrier>(loop, LocalLoop::of(*this, loop)).first;
}

}  // namespace local
