// SPDX-License-Identifier: BSD-3-Clause
#include "conn/shm/carrier.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "conn/kit/descriptor.h"
#include "conn/shm/type.h"
#include "conn/url/coded_failure.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {
namespace {

ssize_t refuse(int error) noexcept {
  errno = error;
  return -1;
}

}  // namespace

ShmCarrier::ShmCarrier(const ShmType& type, LoopState& shared, SettingsPtr settings)
    : QueuedCarrier(type, shared.ready()), shared_(&shared), settings_(std::move(settings)) {
  shared.enter();
}

const ShmType& ShmCarrier::shm_type() const noexcept { return static_cast<const ShmType&>(type()); }

// --- connecting ----------------------------------------------------------------------------------

void ShmCarrier::connect(const Endpoint& to) {
  settings_ = shm_type().settings_for(to.options);
  setup_ = std::make_unique<Setup>(shm_type(), settings_, to);
  try {
    setup_->start(*loop(), [this](Made made) { set_up(std::move(made)); });
  } catch (const std::bad_alloc&) {
    setup_.reset();
    throw;
  }
}

void ShmCarrier::connect_blocking(const Endpoint& to, ae::TimePoint deadline) {
  settings_ = shm_type().settings_for(to.options);
  set_up(Setup(shm_type(), settings_, to).wait(deadline));
}

void ShmCarrier::set_up(Made made) {
  // Owns the Setup, which may have called this function, until this function returns.
  const std::unique_ptr<Setup> setup = std::move(setup_);
  try {
    if (!made.failure) return adopt(std::move(made));
  } catch (const std::bad_alloc&) {
    made.failure = out_of_memory();
  }
  fail(std::move(made.failure));
  update_ready();
}

void ShmCarrier::adopt(Made made) {
  host().occupy(std::move(made.place));
  link_.set(std::move(made.fd), made.peer, std::move(made.channel));
  watch();
  shared_->counters.ring_bytes += link_.reader().size() + link_.writer().size();
  shared_->on_spin_wish(settings_->spin);
  move_to(State::kConnected);
  shared_->heat(*this);
  update_ready();
}

// --- reading and writing -------------------------------------------------------------------------

ssize_t ShmCarrier::read(void* buffer, std::size_t size) {
  const bool failed = state() == State::kError;
  // A child of fork() does not have the shared memory.
  if (inherited()) return failed ? host().no_more_unread() : refuse(ECANCELED);
  if (shared_ == nullptr || iteration_ != shared_->iteration_number()) {
    iteration_ = shared_ == nullptr ? 0 : shared_->iteration_number();
    budget_ = settings_->read_budget;
  }
  Reader& reader = link_.reader();
  // After a failure only the bytes that had arrived before it are read, because the peer may go on
  // writing.
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
  if (inherited()) return refuse(ECANCELED);
  if (link_.refuses()) return refuse_write();
  Writer& writer = link_.writer();
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
  return link_.refuses() ? refuse_write() : refuse(EAGAIN);
}

/// Fails the connection, because the peer reads no more. Returns -1 and sets errno to EPIPE.
ssize_t ShmCarrier::refuse_write() noexcept {
  (void)link_.reader().look();
  fail_with(EPIPE, "write to ");
  host().keep_unread();
  return refuse(EPIPE);
}

int ShmCarrier::shutdown() {
  if (std::exchange(write_ended_, true) || inherited()) return 0;
  link_.writer().finish();
  ring();
  if (read_ended_ && state() == State::kConnected) move_to(State::kClosed);
  update_ready();
  return 0;
}

int ShmCarrier::shutdown_both() {
  if (!inherited()) link_.reader().close();
  write_ended_ = false;  // reset, so that shutdown() wakes the peer even after an earlier call
  (void)shutdown();
  if (state() == State::kConnected) move_to(State::kClosed);
  if (!closing() && shared_ != nullptr) interest_changed();
  return 0;
}

// --- events of the loop, and bells (bytes in the socket that wake the peer) ----------------------

std::size_t ShmCarrier::run_ready() {
  // From now on the loop itself looks in the shared memory for what the peer does.
  if (is_open() && !inherited()) shared_->heat(*this);
  return QueuedCarrier::run_ready();
}

void ShmCarrier::interest_changed() {
  // If join(), the move to this loop, has failed for lack of memory, the connection is in no list
  // of connections whose handlers are due. It needs one so that its handlers learn of the failure.
  if (shared_ == nullptr && loop() != nullptr && !closing())
    attach_list(LoopState::of(type(), *loop()).ready());
  if (is_open() && !inherited()) shared_->heat(*this);
  update_ready();
}

void ShmCarrier::watch() {
  loop()->add_file_event(link_.descriptor().get(), ae::kReadable | ae::kTrusted,
                         [this](int, ae::Mask) { on_socket(); });
  watched_ = true;
}

void ShmCarrier::stop_watching() noexcept {
  if (std::exchange(watched_, false) && loop() != nullptr)
    loop()->remove_file_event(link_.descriptor().get(), ae::kReadable);
  if (shared_ != nullptr) shared_->cool(*this);
}

void ShmCarrier::on_socket() {
  // In a child of fork() the bells (bytes that wake the peer) in the socket are for the parent.
  if (inherited()) return stop_watching();
  shared_->wake();
  take_bells();
  if (!look()) ++shared_->counters.wakes_in_vain;
  if (link_.ended() || state() == State::kError)
    stop_watching();  // a socket that has ended stays readable
  else
    shared_->heat(*this);
  if (!queued()) return;
  unqueue();
  (void)run_ready();
}

void ShmCarrier::take_bells() noexcept {
  const std::size_t taken = link_.take_bells();
  if (shared_ != nullptr) shared_->counters.bells_had += taken;
}

void ShmCarrier::ring() noexcept {
  const bool sent = link_.ring();
  if (shared_ == nullptr) return;
  if (sent) ++shared_->counters.bells_sent;
  if (link_.owes_bell()) shared_->heat(*this);  // the loop tries again to wake the peer
}

/// Reads from the shared memory what the peer has done. Returns whether a handler may be due now.
bool ShmCarrier::look() noexcept {
  if (!is_open() || inherited()) return false;
  if (link_.owes_bell()) ring();
  const bool news = link_.look();
  check_rules();
  if (link_.reader().finished()) host().peer_gone();
  if (link_.lost() && state() == State::kConnected) {
    fail_with(ECONNRESET, "", " ended without closing");
    host().keep_unread();
  }
  update_ready();
  return news;
}

/// Fails the connection if the peer has broken a rule of the protocol.
void ShmCarrier::check_rules() noexcept {
  const char* const broken = link_.broken();
  if (broken == nullptr || !is_open()) return;
  if (shared_ != nullptr) ++shared_->counters.peer_errors;
  fail_with(EPROTO, "", " broke a rule of shm: ", broken);
  ::shutdown(link_.descriptor().get(), SHUT_RDWR);
  stop_watching();
}

/// Fails the connection with error `err`; the text joins `before`, the peer's address, `after` and
/// `more`. If there is no memory for that text, the connection still gets the error code.
void ShmCarrier::fail_with(int err, std::string_view before, std::string_view after,
                           std::string_view more) noexcept {
  fail(coded_failure({err, std::generic_category()}, [&] {
    const std::string text{before};
    return errno_failure(err, text + link_.peer_address().append(after).append(more)).text;
  }));
  update_ready();
}

bool ShmCarrier::look_now() noexcept {
  return (host().wants_read() || host().wants_write()) && look();
}

/// Asks the peer to wake the loop once it has done what a handler waits for. Returns false if the
/// loop must not sleep: the peer has done it already, or an earlier bell (wake-up byte) could not
/// be sent to the peer for lack of memory.
bool ShmCarrier::arm() noexcept {
  if (!is_open() || inherited()) return true;
  if (link_.owes_bell()) ring();
  return !link_.owes_bell() && !wish(host().wants_read(), host().wants_write());
}

void ShmCarrier::disarm() noexcept {
  if (is_open() && !inherited()) link_.unwish();
}

/// Asks the peer to wake this side once there is input (`reading`) or room for output (`writing`),
/// then looks once more. If there is either by then, takes the request back and returns true.
bool ShmCarrier::wish(bool reading, bool writing) noexcept {
  link_.wish(reading && !readable(), writing && !writable());
  (void)look();
  if (!is_open() || !((reading && readable()) || (writing && writable()))) return false;
  link_.unwish();
  return true;
}

bool ShmCarrier::wait_for(ae::Mask direction, ae::TimePoint deadline) {
  const bool reading = direction == ae::kReadable;
  iteration_ = 0;  // the next read() then has the full budget of a new loop iteration
  for (;;) {
    if (inherited()) return true;  // the next call says ECANCELED
    if (shared_ == nullptr) return false;
    (void)look();
    if (!is_open() || (reading ? readable() : writable())) return true;
    // If the loop does not look at the connection's memory, it relies on a request to the peer to
    // wake it, which unwish() below takes back. Therefore heat() makes the loop look at the memory
    // again: before the loop stops doing so, it makes a new request.
    shared_->heat(*this);
    if (wish(reading, !reading) || !is_open()) return true;
    if (!poll_until(link_.descriptor().get(), POLLIN, deadline)) return false;
    take_bells();
    link_.unwish();
  }
}

// --- closing -------------------------------------------------------------------------------------

void ShmCarrier::close() noexcept {
  abandon();
  host().release();
}

void ShmCarrier::abandon() noexcept {
  setup_.reset();
  (void)leave(nullptr);
  link_.end(is_open() && !aborts());  // after a failure or abort() the peer sees an error
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
    if (is_open() && !link_.ended()) {
      watch();
      shared.on_spin_wish(settings_->spin);
      shared.heat(*this);
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

}}}  // namespace conn::shm
