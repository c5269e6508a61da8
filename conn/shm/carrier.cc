// SPDX-License-Identifier: BSD-3-Clause
#include "conn/shm/carrier.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>

#include "conn/kit/descriptor.h"
#include "conn/shm/type.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {

ShmCarrier::ShmCarrier(const ShmType& type, LoopState& shared, SettingsPtr settings)
    : QueuedCarrier(type, shared.ready()), shared_(&shared), settings_(std::move(settings)) {
  shared.enter();
}

const ShmType& ShmCarrier::shm_type() const noexcept { return static_cast<const ShmType&>(type()); }

// --- data ----------------------------------------------------------------------------------------

ssize_t ShmCarrier::refuse(int error) noexcept {
  errno = error;
  return -1;
}

ssize_t ShmCarrier::read(void* buffer, std::size_t size) {
  // A child of fork() does not have the memory.
  if (inherited()) return refuse(EAGAIN);
  const bool failed = state() == State::kError;
  if (shared_ == nullptr || turn_ != shared_->turn()) {
    turn_ = shared_ == nullptr ? 0 : shared_->turn();
    budget_ = settings_->read_budget;
  }
  Reader& reader = channel_->reader;
  // After a failure only the bytes that had come before it are read: the peer may go on writing.
  const std::size_t n =
      reader.get(buffer, std::min(size, failed ? reader.unread() : budget_), [this] { ring(); });
  if (reader.finished()) host().peer_gone();
  if (n != 0) {
    budget_ -= std::min(n, budget_);
    return static_cast<ssize_t>(n);
  }
  if (failed) return host().no_more_unread();
  check_rules();
  if (state() == State::kError) return refuse(host().failure().code.value());
  if (reader.unread() != 0 || !reader.finished()) return refuse(EAGAIN);
  read_ended_ = true;
  if (write_ended_ && state() == State::kConnected) move_to(State::kClosed);
  return 0;
}

ssize_t ShmCarrier::writev(const iovec* vectors, int count) {
  if (write_ended_) return refuse(EPIPE);
  if (inherited()) return refuse(EAGAIN);
  Writer& writer = channel_->writer;
  if (writer.peer_closed() || socket_ended_) return refuse_write();
  const auto bell = [this] { ring(); };
  std::size_t done = 0;
  for (int i = 0; i < count; ++i) {
    const std::size_t n = writer.put(vectors[i].iov_base, vectors[i].iov_len, bell);
    done += n;
    if (n < vectors[i].iov_len) break;
  }
  writer.publish(bell);
  if (done != 0) return static_cast<ssize_t>(done);
  check_rules();
  if (state() == State::kError) return refuse(host().failure().code.value());
  return writer.peer_closed() ? refuse_write() : refuse(EAGAIN);
}

/// Fails the connection, because the peer reads no more.
ssize_t ShmCarrier::refuse_write() noexcept {
  (void)channel_->reader.look();
  fail(failure(EPIPE, "write to "));
  host().keep_unread();
  update_ready();
  return refuse(EPIPE);
}

int ShmCarrier::shutdown() {
  if (std::exchange(write_ended_, true) || inherited() || !channel_) return 0;
  channel_->writer.finish();
  ring();
  if (read_ended_ && state() == State::kConnected) move_to(State::kClosed);
  update_ready();
  return 0;
}

int ShmCarrier::shutdown_both() {
  if (channel_ && !inherited()) channel_->reader.close();
  write_ended_ = false;  // so that shutdown() rings even if it was called before
  (void)shutdown();
  if (state() == State::kConnected) move_to(State::kClosed);
  if (!closing() && shared_ != nullptr) interest_changed();
  return 0;
}

// --- events --------------------------------------------------------------------------------------

bool ShmCarrier::readable() const {
  const Reader& reader = channel_->reader;
  return reader.unread() != 0 || reader.finished();
}

bool ShmCarrier::writable() const {
  const Writer& writer = channel_->writer;
  return writer.room() != 0 || write_ended_ || writer.peer_closed() || socket_ended_;
}

std::size_t ShmCarrier::run_ready() {
  if (is_open() && !inherited()) shared_->heat(*this);  // the loop looks for what comes later
  return QueuedCarrier::run_ready();
}

void ShmCarrier::interest_changed() {
  // A connection whose join() failed for lack of memory has no list. It needs one to report that.
  if (shared_ == nullptr && loop() != nullptr && !closing())
    attach_list(LoopState::of(type(), *loop()).ready());
  if (is_open() && !inherited()) shared_->heat(*this);
  update_ready();
}

void ShmCarrier::watch() {
  loop()->add_file_event(socket_.get(), ae::kReadable | ae::kTrusted,
                         [this](int, ae::Mask) { on_socket(); });
  watched_ = true;
}

void ShmCarrier::stop_watching() noexcept {
  lookup_.reset();
  dial_.reset();
  if (loop() == nullptr) return;
  if (timer_ != 0) loop()->remove_time_event(std::exchange(timer_, 0));
  if (watched_) loop()->remove_file_event(socket_.get(), ae::kReadable);
  watched_ = false;
  if (shared_ != nullptr) shared_->cool(*this);
}

void ShmCarrier::on_socket() {
  // In a child of fork() the bells (bytes that wake) are for the parent.
  if (inherited()) return stop_watching();
  if (awaited_) {
    try {
      return take_answer();
    } catch (const std::bad_alloc&) {
      return not_connected(out_of_memory());
    }
  }
  shared_->wake();
  take_bells();
  if (!look()) ++shared_->counters.wakes_in_vain;
  if (socket_ended_ || state() == State::kError)
    stop_watching();  // a socket that has ended stays readable
  else
    shared_->heat(*this);
  if (!queued()) return;
  unqueue();
  (void)run_ready();
}

/// Takes the bells, bytes by which the peer wakes this process, from the socket, and learns whether
/// the socket has ended. An honest peer rings once for each wish() of this side, and once each for
/// its FIN and its CLOSED.
void ShmCarrier::take_bells() noexcept {
  std::array<char, 256> bells;
  const iovec room{bells.data(), bells.size()};
  ssize_t n;
  do n = tcp::receive_without(socket_.get(), &room, 1, MSG_DONTWAIT, sends_descriptors_);
  while (n < 0 && errno == EINTR);
  if (n > 0) {
    bells_had_ += static_cast<std::uint64_t>(n);
    if (shared_ != nullptr) shared_->counters.bells_had += static_cast<std::uint64_t>(n);
  } else if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) {
    socket_ended_ = true;
  }
}

/// Wakes the peer. A full socket is no failure: the peer has not taken the last bell yet.
void ShmCarrier::ring() noexcept {
  const char bell = 0;
  ssize_t n;
  do n = ::send(socket_.get(), &bell, sizeof bell, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (n < 0 && errno == EINTR);
  bell_failed_ = n < 0 && (errno == ENOMEM || errno == ENOBUFS);
  if (bell_failed_ && shared_ != nullptr) shared_->heat(*this);  // the loop tries again
  if (n < 0) return;
  ++bells_sent_;
  if (shared_ != nullptr) ++shared_->counters.bells_sent;
}

/// Reads what the peer has stored in the shared memory: how far it has written and read, and
/// whether it has ended. Returns whether a handler may be due now.
bool ShmCarrier::look() noexcept {
  if (!is_open() || inherited()) return false;
  if (bell_failed_) ring();
  const bool was_writable = writable();
  bool news = channel_->reader.look();
  channel_->writer.look();
  news = news || writable() != was_writable || socket_ended_;
  check_rules();
  if (channel_->reader.finished()) host().peer_gone();
  // A peer that closes stores FIN and CLOSED first; one that was killed, or aborts, does not.
  const bool closed = channel_->reader.finished() && channel_->writer.peer_closed();
  if (socket_ended_ && !closed && state() == State::kConnected) {
    fail(failure(ECONNRESET, "", " ended without closing"));
    host().keep_unread();
  }
  update_ready();
  return news;
}

/// Fails the connection if the peer has broken a rule.
void ShmCarrier::check_rules() noexcept {
  const char* broken = channel_->reader.broken();
  if (broken == nullptr) broken = channel_->writer.broken();
  if (bells_had_ > channel_->reader.wishes() + channel_->writer.wishes() + 2)
    broken = "it rings more often than it was asked to";
  if (sends_descriptors_) broken = "it sends descriptors";
  if (broken == nullptr || !is_open()) return;
  if (shared_ != nullptr) ++shared_->counters.protocol_errors;
  fail(failure(EPROTO, "", " broke a rule of shm: ", broken));
  ::shutdown(socket_.get(), SHUT_RDWR);
  stop_watching();
  update_ready();
}

bool ShmCarrier::look_now() noexcept {
  return (host().wants_read() || host().wants_write()) && look();
}

/// Asks the peer to ring when what the handlers wait for has come. Returns false if it has come
/// already, or if a bell could not be sent for lack of memory.
bool ShmCarrier::arm() noexcept {
  if (!is_open() || inherited()) return true;
  if (bell_failed_) ring();
  return !bell_failed_ && !wish(host().wants_read(), host().wants_write());
}

void ShmCarrier::disarm() noexcept {
  if (is_open() && !inherited()) unwish();
}

/// Asks the peer to ring, then looks once more. Returns true, and asks the peer not to ring, if
/// what is waited for has come already.
bool ShmCarrier::wish(bool reading, bool writing) noexcept {
  if (reading && !readable()) channel_->reader.wish();
  if (writing && !writable()) channel_->writer.wish();
  (void)look();
  if (!is_open() || !((reading && readable()) || (writing && writable()))) return false;
  unwish();
  return true;
}

void ShmCarrier::unwish() noexcept {
  channel_->reader.unwish();
  channel_->writer.unwish();
}

bool ShmCarrier::wait_for(ae::Mask direction, ae::TimePoint deadline) {
  const bool reading = direction == ae::kReadable;
  turn_ = 0;  // so that the next read() has a new read budget
  for (;;) {
    if (inherited() || !channel_ || shared_ == nullptr) return false;
    (void)look();
    if (!is_open() || (reading ? readable() : writable())) return true;
    // unwish() below takes back what a cold connection has asked of its peer, so the loop must ask
    // again when it makes the connection cold.
    shared_->heat(*this);
    if (wish(reading, !reading)) return true;
    if (!is_open()) return true;
    if (!poll_until(socket_.get(), POLLIN, deadline)) return false;
    take_bells();
    unwish();
  }
}

// --- the end -------------------------------------------------------------------------------------

void ShmCarrier::close() noexcept {
  abandon();
  host().release();
}

void ShmCarrier::abandon() noexcept {
  stop_watching();
  detach_list();
  if (shared_ != nullptr) std::exchange(shared_, nullptr)->leave(*this);
  end();
}

/// Ends the connection. The peer sees an error if the connection is aborted or has failed. The
/// socket is shut down, not just closed, since a child of fork() may have a copy of it.
void ShmCarrier::end() noexcept {
  if (!socket_) return;
  if (!inherited()) {
    if (channel_ && is_open() && !aborts()) {
      channel_->reader.close();
      channel_->writer.finish();
    }
    ::shutdown(socket_.get(), SHUT_RDWR);
  }
  socket_.reset();
}

// --- moving to another loop ----------------------------------------------------------------------

bool ShmCarrier::leave(ae::EventLoop*) {
  stop_watching();
  detach_list();
  if (shared_ != nullptr) std::exchange(shared_, nullptr)->leave(*this);
  return true;
}

bool ShmCarrier::join(ae::EventLoop& loop) {
  try {
    LoopState& shared = LoopState::of(type(), loop);
    shared.enter();
    shared_ = &shared;
    attach_list(shared.ready());
    if (socket_ && !socket_ended_ && is_open()) {
      watch();
      shared.on_spin_wish(settings_->spin);
      shared.heat(*this);
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

// --- facts ---------------------------------------------------------------------------------------

SocketAddress ShmCarrier::local_sockaddr() const noexcept {
  return socket_ ? tcp::local_address_of(socket_.get()) : SocketAddress{};
}

SocketAddress ShmCarrier::peer_sockaddr() const noexcept {
  return socket_ ? tcp::peer_address_of(socket_.get()) : SocketAddress{};
}

std::string ShmCarrier::local_address() const { return local_sockaddr().to_string(); }

std::string ShmCarrier::peer_address() const {
  if (!socket_) return {};
  // A client's socket has no name, so the listener's path is shown instead.
  std::string name = tcp::peer_address_of(socket_.get()).to_string();
  return name.empty() ? local_address() : name;
}

std::optional<PeerCredentials> ShmCarrier::peer_credentials() const {
  return socket_ ? tcp::credentials_of(socket_.get()) : std::nullopt;
}

std::string ShmCarrier::path() const { return "shm " + peer_address(); }

std::vector<std::pair<std::string, std::string>> ShmCarrier::info() const {
  if (!socket_ || !channel_) return {};
  std::vector<std::pair<std::string, std::string>> facts;
  tcp::add_credentials(socket_.get(), facts);
  facts.emplace_back("ring-in", std::to_string(channel_->reader.size()));
  facts.emplace_back("ring-out", std::to_string(channel_->writer.size()));
  facts.emplace_back("unread", std::to_string(channel_->reader.unread()));
  facts.emplace_back("room", std::to_string(channel_->writer.room()));
  facts.emplace_back("bells-sent", std::to_string(bells_sent_));
  facts.emplace_back("bells-had", std::to_string(bells_had_));
  return facts;
}

}}}  // namespace conn::shm
