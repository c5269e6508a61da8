// SPDX-License-Identifier: BSD-3-Clause
#include "conn/core/connection_base.h"

#include <cerrno>
#include <chrono>

#include "conn/connection_type.h"
#include "conn/core/counting.h"
#include "conn/kit/errno_of.h"
#include "conn/kit/interruption.h"
#include "conn/kit/probes.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

/// Returns the text of ConnectionFacts::path() for a connection whose Carrier provides none: the
/// type and both addresses, "tcp 10.0.0.2:50400 > 10.0.0.1:6379".
std::string usual_path(const Carrier& carrier) {
  std::string line(carrier.type().name());
  const CarrierFacts& facts = carrier.facts();
  const std::string here = facts.local_address(), there = facts.peer_address();
  if (!here.empty()) line.append(" ").append(here);
  // Both ends of a Unix socket have the same name, which is shown only once.
  if (there.empty() || there == here) return line;
  if (!here.empty()) line += " >";
  return line.append(" ").append(there);
}

}  // namespace

// --- changing the Carrier, and connecting --------------------------------------------------------

void ConnectionBase::take_over(CarrierHost& other) noexcept {
  auto& from = static_cast<ConnectionBase&>(other);
  // The state changes before the connection gets other counters, so that it counts as established
  // for the type that created it.
  move_to(State::kConnected);
  exchange_carriers(from);
  place_ = std::move(from.place_);
  peer_gone_ = from.peer_gone_;
  leave_counters();
  // `from` is counted as an open connection of the new Carrier's type. From now on this connection
  // has that place in the count.
  counters_ = std::exchange(from.counters_, nullptr);
  carrier_changed();
  from.carrier_changed();
}

void ConnectionBase::become(ConnectionBase& from) noexcept {
  loop_ = from.loop_;
  id_ = from.id_;
  state_ = from.state_;
  lost_ = from.lost_;
  failure_ = std::move(from.failure_);
  exchange_carriers(from);
  place_ = std::move(from.place_);
  peer_gone_ = from.peer_gone_;
  counters_ = std::exchange(from.counters_, nullptr);
  began_ = from.began_;
  bytes_read_ = from.bytes_read_;
  bytes_written_ = from.bytes_written_;
}

bool ConnectionBase::wait_to_connect(const Endpoint& to, ae::TimePoint deadline) {
  carrier_->connect_blocking(to, deadline);
  const int why = Interruption::ends() ? EINTR : ETIMEDOUT;
  if (state_ == State::kConnecting) fail(errno_failure(why, "connect to " + to.to_string()));
  if (state_ == State::kConnected) return true;
  errno = why == EINTR ? EINTR : errno_of(failure_);
  return false;
}

// --- counters ------------------------------------------------------------------------------------

void ConnectionBase::enter_counters(ae::EventLoop& loop) {
  counters_ = &carrier_->type().counters(loop);
  ++counters_->open;
}

void ConnectionBase::leave_counters() noexcept {
  if (counters_ == nullptr) return;
  --counters_->open;
  counters_ = nullptr;
}

void ConnectionBase::count_state(State from) noexcept {
  const bool ours = from == State::kConnecting;
  if (state_ == State::kConnecting || state_ == State::kAccepting)
    began_ = std::chrono::steady_clock::now();
  if (counters_ == nullptr) return;
  if (state_ == State::kConnected) {
    ++(ours ? counters_->connected : counters_->accepted);
    if (from != State::kNone)
      (ours ? counters_->connect_time : counters_->accept_time)
          .add(std::chrono::steady_clock::now() - began_);
  } else if (state_ == State::kError) {
    if (ours) ++counters_->not_connected[static_cast<std::size_t>(kind_of(failure_.code))];
    ++counters_->failed;
  }
}

void ConnectionBase::count_close() noexcept {
  if (counters_ != nullptr) ++counters_->closed;
  AECONN_PROBE(close, id_, bytes_read_, bytes_written_, failure_.code.value());
}

// --- results of reads and writes -----------------------------------------------------------------

/// The part of finish_read() for a read that returned no bytes: records the end of the stream, or
/// that the failure was reported. Returns `n`.
ssize_t ConnectionBase::read_nothing(ssize_t n) noexcept {
  if (n == 0) {
    peer_gone();
  } else if (state_ == State::kError) {
    lost_.unread_kept = false;
    lost_.read_reported = true;
  } else if (errno == EAGAIN) {
    vain_.refused(true);
  }
  return n;
}

/// The part of finish_write() for a write that did not accept all bytes: counts the short write, or
/// records that the failure was reported. Returns `n`.
ssize_t ConnectionBase::wrote_less(ssize_t n) noexcept {
  if (n > 0) {
    count_written(static_cast<std::size_t>(n));
    if (counters_ != nullptr) ++counters_->short_writes;
  } else if (n < 0 && state_ == State::kError) {
    lost_.write_reported = true;
  } else if (n < 0 && errno == EAGAIN) {
    refused_write();
  }
  return n;
}

void ConnectionBase::refused_write() noexcept {
  vain_.refused(false);
  if (counters_ != nullptr) ++counters_->short_writes;
}

void ConnectionBase::look_at_run(bool reads, std::uint64_t before) noexcept {
  const unsigned row = vain_.look(reads, (reads ? bytes_read_ : bytes_written_) != before);
  if (row > SpuriousWakeups::longest_row.load(std::memory_order_relaxed))
    SpuriousWakeups::longest_row.store(row, std::memory_order_relaxed);
}

// --- facts about the connection ------------------------------------------------------------------

std::string ConnectionBase::path_and_origin() const {
  const bool was_open =
      state_ == State::kConnected || state_ == State::kClosed || lost_.established;
  if (!was_open) return {};
  std::string line = carrier_->facts().path();
  if (line.empty()) line = usual_path(*carrier_);
  if (const Origin* const known = origin()) line += known->path;
  return printable(std::move(line));
}

std::vector<std::pair<std::string, std::string>> ConnectionBase::info_and_origin() const {
  std::vector<std::pair<std::string, std::string>> facts;
  if (const Origin* const known = origin()) facts = known->facts;
  for (auto& fact : carrier_->facts().info()) facts.push_back(std::move(fact));
  return facts;
}

}}  // namespace conn
