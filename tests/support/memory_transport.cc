// SPDX-License-Identifier: BSD-3-Clause
#include "tests/support/memory_transport.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <span>

#include "conn/core/acceptor_base.h"
#include "conn/core/connection_set.h"
#include "conn/core/make_connection.h"
#include "conn/spi/queued_carrier.h"

namespace conn { inline namespace AECONN_ABI { namespace memory {
namespace {

constexpr unsigned kAcceptsPerIteration = 16;  // a flood of arrivals starves nobody
constexpr unsigned kLongestDelay = 8;          // iterations

class MemoryCarrier;
class MemoryListener;

/// What the type keeps for one loop.
struct MemoryLoop final : ae::LoopLocal {
  MemoryLoop(const MemoryType& its_type, ae::EventLoop& its_loop, ConnectionSet& its_set)
      : type(its_type), loop(its_loop), set(its_set), config(type.config()), random(config.seed) {
    loop.add_source(ready);
  }
  ~MemoryLoop() override;
  static MemoryLoop& of(const MemoryType& type, ae::EventLoop& loop) {
    ConnectionSet& set = ConnectionSet::of(loop);  // there first, so it goes last: we still use it
    std::unique_ptr<ae::LoopLocal>& slot = loop.local(&type);
    if (!slot) slot = std::make_unique<MemoryLoop>(type, loop, set);
    return static_cast<MemoryLoop&>(*slot);
  }

  bool fault(double probability) {
    if (probability <= 0 || std::uniform_real_distribution<>()(random) >= probability) return false;
    ++faults;
    return true;
  }
  std::size_t one_to(std::size_t most) { return 1 + random() % most; }

  const MemoryType& type;
  ae::EventLoop& loop;
  ConnectionSet& set;
  const Config config;
  std::mt19937_64 random;
  std::uint64_t faults = 0;
  std::uint64_t links = 0;
  ReadyList ready{loop};
  std::set<MemoryListener*> listeners;
};

/// Who listens on this thread, by type and name.
using Names = std::map<std::pair<const MemoryType*, std::string>, MemoryListener*>;
Names& names() {
  thread_local Names all;
  return all;
}

/// One direction of a link: a ring of bytes. The reader sees them once they are revealed.
class Pipe {
 public:
  explicit Pipe(std::size_t capacity) : bytes_(capacity) {}

  std::size_t room() const { return bytes_.size() - size_; }
  std::size_t visible() const { return visible_; }
  bool at_end() const { return finished && size_ == 0; }
  void reveal() { visible_ = size_; }
  /// Takes what fits.
  std::size_t write(const char* from, std::size_t size) {
    size = std::min(size, room());
    const std::size_t tail = (head_ + size_) % bytes_.size();
    const std::size_t straight = std::min(size, bytes_.size() - tail);
    std::copy_n(from, straight, bytes_.data() + tail);
    std::copy_n(from + straight, size - straight, bytes_.data());
    size_ += size;
    return size;
  }
  std::size_t read(char* into, std::size_t size) {
    size = std::min(size, visible_);
    const std::size_t straight = std::min(size, bytes_.size() - head_);
    std::copy_n(bytes_.data() + head_, straight, into);
    std::copy_n(bytes_.data(), size - straight, into + straight);
    head_ = (head_ + size) % bytes_.size();
    size_ -= size;
    visible_ -= size;
    return size;
  }

  bool finished = false;   // the writer will write no more
  bool abandoned = false;  // the reader will read no more

 private:
  std::vector<char> bytes_;
  std::size_t head_ = 0, size_ = 0, visible_ = 0;
};

/// What joins two ends. It belongs to both, so the bytes survive the end that wrote them: that is
/// all the linger this transport needs.
struct Link {
  Link(std::size_t pipe_size, std::string listener, std::uint64_t number)
      : pipes{Pipe(pipe_size), Pipe(pipe_size)},
        names{listener + "#" + std::to_string(number), listener} {}
  void reset(const char* why) noexcept;

  std::array<Pipe, 2> pipes;             // [i]: what end i writes
  std::array<MemoryCarrier*, 2> ends{};  // client and server; null before accept, after close
  std::array<std::string, 2> names;
  bool broken = false;
};

class MemoryCarrier final : public QueuedCarrier {
 public:
  MemoryCarrier(const MemoryType& type, MemoryLoop& shared)
      : QueuedCarrier(type, shared.ready), shared_(&shared), arrival_(*this) {}

  /// The server's end of a link that waited in a backlog, maybe on another loop.
  void accept(std::shared_ptr<Link> link, Quota::Place place) {
    host().occupy(std::move(place));
    move_to(State::kAccepting);
    attach(std::move(link), 1);
  }
  void on_reset(const char* why) {
    fail(errno_failure(ECONNRESET, why));
    update_ready();
  }

  std::string local_address() const override { return link_ ? link_->names[side_] : ""; }
  std::string peer_address() const override { return link_ ? link_->names[1 - side_] : ""; }
  std::optional<bool> is_local() const override { return true; }

 private:
  /// What is on its way to this connection, counted in iterations.
  struct Arrival final : ReadyItem {
    explicit Arrival(MemoryCarrier& connection) : to(connection) {}
    std::size_t run_ready() override {
      if (--iterations > 0) {
        to.shared_->ready.push(*this);
      } else {
        to.arrive();
      }
      return 0;
    }
    MemoryCarrier& to;
    std::size_t iterations = 0;
  };

  Pipe& in() const { return link_->pipes[1 - side_]; }
  Pipe& out() const { return link_->pipes[side_]; }
  MemoryCarrier* peer() const { return link_->ends[1 - side_]; }
  void tell_peer() noexcept {
    if (peer() != nullptr) peer()->update_ready_of(shared_);
  }
  void update_ready_of(const MemoryLoop* teller) noexcept {
    if (in().finished) host().peer_gone();
    update_ready();
    if (teller == shared_) return;
    try {
      shared_->loop.post([] {});       // it may be about to sleep
    } catch (const std::bad_alloc&) {  // then it finds out with its next event
    }
  }
  const Faults& faults() const { return shared_->config.faults; }

  // --- connecting -------------------------------------------------------------------------------
  void connect(const Endpoint& to) override {
    target_ = to;
    if (!delayed()) arrive();
  }
  void connect_blocking(const Endpoint& to, ae::TimePoint) override {
    target_ = to;
    arrive();
  }
  void establish();
  void attach(std::shared_ptr<Link> link, std::size_t side) {
    link_ = std::move(link);
    side_ = side;
    link_->ends[side_] = this;
    in().reveal();
    move_to(State::kConnected);
    if (in().finished) host().peer_gone();
  }

  // --- delays -----------------------------------------------------------------------------------
  /// Draws whether what is sent to this connection now arrives later; then so does what follows.
  bool delayed() {
    if (arrival_.queued()) return true;
    if (!shared_->fault(faults().delay)) return false;
    arrival_.iterations = shared_->one_to(kLongestDelay);
    shared_->ready.push(arrival_);
    return true;
  }
  void arrive() {
    arrival_.unqueue();
    if (state() == State::kConnecting) {
      establish();
    } else if (link_) {
      in().reveal();
    }
    update_ready();
  }

  // --- data -------------------------------------------------------------------------------------
  bool readable() const override { return in().visible() > 0 || in().at_end(); }
  bool writable() const override { return out().room() > 0 || out().finished || out().abandoned; }
  ssize_t read(void* buffer, std::size_t size) override {
    if (broken_by(faults().read_error, "read")) return -1;
    if (in().at_end()) return end_of_stream();
    if (in().visible() == 0 || shared_->fault(faults().again)) return no(EAGAIN);
    if (shared_->fault(faults().short_read)) size = shared_->one_to(size);
    const std::size_t n = in().read(static_cast<char*>(buffer), size);
    tell_peer();  // there is room
    update_ready();
    return static_cast<ssize_t>(n);
  }
  ssize_t writev(const iovec* vectors, int count) override {
    if (out().finished) return no(EPIPE);
    if (broken_by(faults().write_error, "write")) return -1;
    if (out().abandoned) {
      fail(errno_failure(EPIPE, "write"));
      update_ready();
      return no(EPIPE);
    }
    if (out().room() == 0 || shared_->fault(faults().again)) return no(EAGAIN);
    std::size_t left = out().room();
    if (shared_->fault(faults().short_write)) left = shared_->one_to(left);
    std::size_t written = 0;
    for (const iovec& vector : std::span(vectors, static_cast<std::size_t>(count))) {
      const std::size_t n = std::min(vector.iov_len, left - written);
      written += out().write(static_cast<const char*>(vector.iov_base), n);
    }
    if (peer() == nullptr || !peer()->delayed()) out().reveal();
    tell_peer();
    update_ready();
    return static_cast<ssize_t>(written);
  }
  static ssize_t no(int error) {
    errno = error;
    return -1;
  }
  bool broken_by(double probability, const char* call) {
    if (!shared_->fault(probability) && !shared_->fault(faults().reset)) return false;
    link_->reset(call);
    errno = ECONNRESET;
    return true;
  }
  /// Both ends are on this thread: what is delayed can still come, everything else cannot.
  bool wait_for(ae::Mask direction, ae::TimePoint deadline) override {
    if (direction == ae::kReadable && arrival_.queued()) arrive();
    if (direction == ae::kReadable ? readable() : writable()) return true;
    // Not sleep_until(), which begins again after each signal, a little later each time.
    while (std::chrono::steady_clock::now() < deadline) (void)::poll(nullptr, 0, 1);
    return false;
  }

  // --- ends -------------------------------------------------------------------------------------
  ssize_t end_of_stream() {
    end_was_read_ = true;
    if (out().finished && state() == State::kConnected) move_to(State::kClosed);
    return 0;
  }
  int shutdown() override {
    out().finished = true;
    if (end_was_read_) move_to(State::kClosed);
    tell_peer();
    update_ready();
    return 0;
  }
  void detach() noexcept {
    arrival_.unqueue();
    if (!link_) return;
    link_->ends[side_] = nullptr;
    if (aborts()) link_->reset("the peer aborted the connection");
    out().finished = true;
    in().abandoned = true;
    tell_peer();
    link_.reset();
  }
  void close() noexcept override {
    detach();
    host().release();
  }
  void abandon() noexcept override {
    detach();
    detach_list();
    shared_ = nullptr;
  }

  MemoryLoop* shared_;
  Arrival arrival_;
  Endpoint target_;
  std::shared_ptr<Link> link_;
  std::size_t side_ = 0;
  bool end_was_read_ = false;
};

void Link::reset(const char* why) noexcept {
  broken = true;
  for (MemoryCarrier* end : ends) {
    if (end != nullptr) end->on_reset(why);
  }
}

/// Not accepted yet. Dropping it resets the connection.
class MemoryPending final : public PendingConnection {
 public:
  explicit MemoryPending(std::shared_ptr<Link> link) : link_(std::move(link)) {}
  ~MemoryPending() override { refuse("the server is gone"); }
  std::string peer() const override { return link_ ? link_->names[0] : ""; }
  void refuse(std::string_view why) noexcept override {
    if (link_) std::exchange(link_, nullptr)->reset(std::string(why).c_str());
  }

 private:
  friend class MemoryAcceptor;
  std::shared_ptr<Link> link_;
};

class MemoryAcceptor final : public AcceptorBase {
 public:
  MemoryAcceptor(MemoryLoop& shared, AcceptHandler accepted)
      : AcceptorBase(shared.type, shared.ready, kAcceptsPerIteration, std::move(accepted)),
        shared_(shared) {}

 private:
  void begin(PendingConnectionPtr arrival) override {
    const std::shared_ptr<Link> link = std::move(static_cast<MemoryPending&>(*arrival).link_);
    if (link->broken) return lost();
    auto [connection, carrier] = make_connection<MemoryCarrier>(loop(), shared_.type, shared_);
    carrier.accept(link, std::move(arrival->place));
    arrival.reset();
    hand_over(std::move(connection));
  }
  void on_stop(bool loop_ends) noexcept override;

  MemoryLoop& shared_;
};

/// Hands out what arrives, and can go to another loop.
class MemoryListener final : public PortListener, public ReadyItem {
 public:
  MemoryListener(const MemoryType& type, MemoryLoop& shared, const Endpoint& endpoint,
                 PendingHandler arrived)
      : type_(type),
        shared_(&shared),
        endpoint_(endpoint),
        arrived_(std::make_shared<PendingHandler>(std::move(arrived))) {
    if (!names().emplace(key(), this).second) {
      throw conn::errno_error(EADDRINUSE, "listen on " + endpoint.to_string());
    }
    shared.listeners.insert(this);
  }
  ~MemoryListener() override {
    if (shared_ != nullptr) leave_loop();
    for (const auto& link : backlog_) link->reset("the listener is gone");
  }

  const ConnectionType& type() const noexcept override { return type_; }
  std::vector<Endpoint> endpoints() const override { return {endpoint_}; }
  void pause() override { paused_ = true; }
  void resume() override {
    paused_ = false;
    if (shared_ != nullptr && !backlog_.empty()) shared_->ready.push(*this);
  }
  std::uint64_t max_connections() const override { return shared_->config.max_connections; }
  bool leave(const Handoff*) noexcept override {
    if (shared_ != nullptr) leave_loop();
    return true;
  }
  void arrive(ae::EventLoop& loop) override {
    MemoryLoop& shared = MemoryLoop::of(type_, loop);
    if (!names().emplace(key(), this).second) throw conn::errno_error(EADDRINUSE, "take the name");
    shared_ = &shared;
    shared.listeners.insert(this);
    if (!paused_ && !backlog_.empty()) shared.ready.push(*this);
  }

  bool full() const { return backlog_.size() >= shared_->config.backlog; }
  void arrive(std::shared_ptr<Link> link, const MemoryLoop* from) {
    backlog_.push_back(std::move(link));
    if (paused_) return;
    shared_->ready.push(*this);
    if (from != shared_) shared_->loop.post([] {});  // it may be about to sleep
  }
  /// Leaves the clients alone: they end with their loop.
  void forget_clients() noexcept { backlog_.clear(); }
  void leave_loop() noexcept {
    unqueue();
    names().erase(key());
    shared_->listeners.erase(this);
    shared_ = nullptr;
  }

 private:
  std::pair<const MemoryType*, std::string> key() const {
    return {&type_, endpoint_.hosts.front().name};
  }

  std::size_t run_ready() override {
    // The handler may destroy this listener; then the copy is the only one left.
    const std::shared_ptr<PendingHandler> arrived = arrived_;
    std::size_t ran = 0;
    for (unsigned i = 0; i < kAcceptsPerIteration && !paused_ && !backlog_.empty(); ++i) {
      const std::shared_ptr<Link> link = std::move(backlog_.front());
      backlog_.pop_front();
      if (shared_->fault(shared_->config.faults.accept_error)) link->reset("accept");
      if (link->broken) {
        ++type_.counters(shared_->loop).accept_errors;
        continue;
      }
      ++ran;
      (*arrived)(std::make_unique<MemoryPending>(link));
      if (arrived.use_count() == 1) return ran;
    }
    if (!paused_ && !backlog_.empty()) shared_->ready.push(*this);
    return ran;
  }

  const MemoryType& type_;
  MemoryLoop* shared_;
  const Endpoint endpoint_;
  const std::shared_ptr<PendingHandler> arrived_;
  std::deque<std::shared_ptr<Link>> backlog_;
  bool paused_ = false;
};

void MemoryAcceptor::on_stop(bool loop_ends) noexcept {
  if (loop_ends && port() != nullptr) static_cast<MemoryListener*>(port())->forget_clients();
  while (const PendingConnectionPtr one = loop_ends ? give_back() : nullptr)
    static_cast<MemoryPending&>(*one).link_.reset();
}

void MemoryCarrier::establish() {
  const std::string& name = target_.hosts.front().name;
  const std::string what = "connect to " + target_.to_string();
  if (shared_->fault(faults().connect_error)) return fail(errno_failure(ENETUNREACH, what));
  const auto found = names().find({&shared_->type, name});
  if (found == names().end() || found->second->full()) {
    return fail(errno_failure(ECONNREFUSED, what));
  }
  attach(std::make_shared<Link>(shared_->config.pipe_size, name, ++shared_->links), 0);
  found->second->arrive(link_, shared_);
}

MemoryLoop::~MemoryLoop() {
  set.loop_ends();
  set.abandon(type);
  while (!listeners.empty()) (*listeners.begin())->leave_loop();
  loop.remove_source(ready);
}

}  // namespace

void MemoryType::configure(const Options& options) {
  options.only("memory", {"pipe", "backlog", "max-connections"});
  Config next = config_;
  next.pipe_size = options.bytes("pipe", next.pipe_size, 1, std::size_t{1} << 30);
  next.backlog = options.number("backlog", next.backlog, 1, 65535);
  next.max_connections = options.number("max-connections", next.max_connections, 1, Quota::kMost);
  config_ = next;
}

void MemoryType::check(const Endpoint& endpoint) const {
  if (endpoint.hosts.size() != 1 || !endpoint.no_port || !endpoint.options.empty()) {
    throw Error(endpoint.to_string() + ": a memory address is one name, as in memory://name");
  }
}

ListenerPtr MemoryType::listen(ae::EventLoop& loop, const Endpoint& endpoint,
                               AcceptHandler accepted) const {
  check(endpoint);
  AcceptorPtr<> acceptor(new MemoryAcceptor(MemoryLoop::of(*this, loop), std::move(accepted)));
  acceptor->limit(config_.max_connections);
  acceptor->listen_on(open_port(loop, endpoint, [to = acceptor.get()](PendingConnectionPtr one) {
    to->arrive(std::move(one));
  }));
  return std::make_unique<AcceptingListener>(std::move(acceptor));
}

PortListenerPtr MemoryType::open_port(ae::EventLoop& loop, const Endpoint& endpoint,
                                      PendingHandler arrived) const {
  check(endpoint);
  return std::make_unique<MemoryListener>(*this, MemoryLoop::of(*this, loop), endpoint,
                                          std::move(arrived));
}

LoopAcceptorPtr MemoryType::open_acceptor(ae::EventLoop& loop, const Endpoint&,
                                          AcceptHandler accepted) const {
  return std::make_unique<AcceptingListener>(
      AcceptorPtr<>(new MemoryAcceptor(MemoryLoop::of(*this, loop), std::move(accepted))));
}

ConnectionPtr MemoryType::create(ae::EventLoop& loop) const {
  return make_connection<MemoryCarrier>(loop, *this, MemoryLoop::of(*this, loop)).first;
}

Statistics MemoryType::statistics(ae::EventLoop& loop) const {
  Statistics all = Transport::statistics(loop);
  all.emplace_back("faults", MemoryLoop::of(*this, loop).faults);
  return all;
}

}}}  // namespace conn::memory
