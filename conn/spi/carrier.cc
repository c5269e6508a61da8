// SPDX-License-Identifier: BSD-3-Clause
#include "conn/spi/carrier.h"

#include <atomic>
#include <cassert>
#include <cerrno>

#include "conn/kit/errno_of.h"
#include "conn/kit/resolver.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

std::uint64_t next_id() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

/// Returns whether a connection's state may change from `from` to `to`. The states kClosed and
/// kError are final.
constexpr bool allowed(State from, State to) noexcept {
  switch (from) {
    case State::kNone:
      return to == State::kConnecting || to == State::kAccepting || to == State::kConnected ||
             to == State::kError;
    case State::kConnecting:
    case State::kAccepting:
      return to == State::kConnected || to == State::kError;
    case State::kConnected:
      return to == State::kClosed || to == State::kError;
    case State::kClosed:
    case State::kError:
      return false;
  }
  return false;
}

}  // namespace

std::string_view to_string(State state) noexcept {
  switch (state) {
    case State::kNone:
      return "none";
    case State::kConnecting:
      return "connecting";
    case State::kAccepting:
      return "accepting";
    case State::kConnected:
      return "connected";
    case State::kClosed:
      return "closed";
    case State::kError:
      return "error";
  }
  return "?";
}

// --- CarrierHost: the connection as its carrier sees it ------------------------------------------

CarrierHost::CarrierHost() noexcept : id_(0) {}

CarrierHost::CarrierHost(std::unique_ptr<Carrier> carrier, ae::EventLoop& loop) noexcept
    : carrier_(std::move(carrier)), loop_(&loop), id_(next_id()) {
  carrier_->host_ = this;
}

CarrierHost::~CarrierHost() = default;

void CarrierHost::exchange_carriers(CarrierHost& other) noexcept {
  carrier_.swap(other.carrier_);
  for (CarrierHost* const host : {this, &other}) {
    if (!host->carrier_) continue;
    host->carrier_->host_ = host;
    host->carrier_->host_changed();
  }
}

void CarrierHost::enter_loop(ae::EventLoop& loop) noexcept {
  loop_ = &loop;
  if (place_) place_->moved_to(loop);
}

void CarrierHost::move_to(State next) {
  assert(allowed(state_, next));
  const State from = std::exchange(state_, next);
  state_changed(from);
}

void CarrierHost::fail(Failure failure) {
  assert(failure);
  // Only the first failure is recorded; a later one is a consequence of it.
  if (state_ == State::kError || state_ == State::kClosed) return;
  failure_ = std::move(failure);
  failure_.text = printable(std::move(failure_.text));
  lost_.established = state_ == State::kConnected;
  move_to(State::kError);
}

void CarrierHost::peer_gone() noexcept {
  peer_gone_ = true;
  peer_gone_changed();
}

void CarrierHost::release() noexcept {
  if (std::exchange(ending_, Ending::kReleased) != Ending::kReleased) released();
}

void CarrierHost::watch_or_fail() noexcept {
  for (int tries = 0; tries < 2; ++tries) {
    try {
      return carrier_->interest_changed();
    } catch (const std::bad_alloc&) {
      if (ending_ != Ending::kOpen) return;
      fail(out_of_memory());
    }
  }
}

ssize_t CarrierHost::no_more_unread() const noexcept {
  errno = errno_of(failure_);
  return -1;
}

ssize_t CarrierHost::refuse(ae::Mask direction) noexcept {
  const bool reading = direction == ae::kReadable;
  if (state_ == State::kClosed) {
    if (reading) return 0;
    errno = EPIPE;
    return -1;
  }
  bool& reported = reading ? lost_.read_reported : lost_.write_reported;
  errno = state_ == State::kError && !reported ? errno_of(failure_) : ENOTCONN;
  if (state_ == State::kError) reported = true;
  return -1;
}

// --- default implementations of a carrier's functions --------------------------------------------

CarrierBase::~CarrierBase() = default;

CarrierFacts::~CarrierFacts() = default;
SocketAddress CarrierFacts::local_sockaddr() const noexcept { return {}; }
SocketAddress CarrierFacts::peer_sockaddr() const noexcept { return {}; }

ssize_t Carrier::write(const void* buffer, std::size_t size) {
  const iovec vector{const_cast<void*>(buffer), size};
  return writev(&vector, 1);
}

ssize_t Carrier::readv(const iovec* vectors, int count) {
  ssize_t all = 0;
  for (int i = 0; i < count; ++i) {
    if (vectors[i].iov_len == 0) continue;
    const ssize_t n = read(vectors[i].iov_base, vectors[i].iov_len);
    // If bytes were read before the end of stream or the error, the next call reports that end or
    // error.
    if (n <= 0) return all != 0 ? all : n;
    all += n;
    if (static_cast<std::size_t>(n) < vectors[i].iov_len) break;
  }
  return all;
}

int Carrier::shutdown_both() {
  if (shutdown() != 0) return -1;
  if (state() == State::kConnected) move_to(State::kClosed);
  if (!closing() && loop() != nullptr) interest_changed();
  return 0;
}

bool Carrier::leave(ae::EventLoop*) {
  errno = EOPNOTSUPP;
  return false;
}

ssize_t Carrier::send(const Outgoing&) {
  errno = EOPNOTSUPP;
  return -1;
}

}}  // namespace conn
