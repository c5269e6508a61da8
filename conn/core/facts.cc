// SPDX-License-Identifier: BSD-3-Clause
// Implements ConnectionFacts: each fact comes from the ConnectionCore or from its carrier.

#include "conn/connection_facts.h"

#include "conn/connection_type.h"
#include "conn/core/connection_core.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

/// Returns the path of a connection whose carrier describes none, "tcp 10.0.0.2:50400 >
/// 10.0.0.1:6379": the type and both addresses.
std::string usual_path(const Carrier& carrier) {
  std::string line(carrier.type().name());
  const std::string here = carrier.local_address(), there = carrier.peer_address();
  if (!here.empty()) line.append(" ").append(here);
  // The two ends of a Unix socket have the same name, which is shown once.
  if (there.empty() || there == here) return line;
  if (!here.empty()) line += " >";
  return line.append(" ").append(there);
}

}  // namespace

State ConnectionFacts::state() const noexcept { return ConnectionCore::of(*this).state_; }

ae::EventLoop* ConnectionFacts::loop() const noexcept { return ConnectionCore::of(*this).loop_; }

const ConnectionType& ConnectionFacts::type() const noexcept {
  return ConnectionCore::of(*this).type_;
}

std::uint64_t ConnectionFacts::id() const noexcept { return ConnectionCore::of(*this).id_; }

std::uint64_t ConnectionFacts::bytes_read() const noexcept {
  return ConnectionCore::of(*this).bytes_read_;
}

std::uint64_t ConnectionFacts::bytes_written() const noexcept {
  return ConnectionCore::of(*this).bytes_written_;
}

const std::string& ConnectionFacts::last_error() const noexcept {
  return ConnectionCore::of(*this).failure_.text;
}

std::error_code ConnectionFacts::error_code() const noexcept {
  return ConnectionCore::of(*this).failure_.code;
}

std::chrono::milliseconds ConnectionFacts::retry_after() const noexcept {
  return ConnectionCore::of(*this).failure_.retry_after;
}

const Failure& ConnectionFacts::why_ended() const noexcept {
  return ConnectionCore::of(*this).carrier_->why_ended();
}

int ConnectionFacts::fd() const noexcept { return ConnectionCore::of(*this).carrier_->fd(); }

std::string ConnectionFacts::local_address() const {
  return ConnectionCore::of(*this).carrier_->local_address();
}

std::string ConnectionFacts::peer_address() const {
  return ConnectionCore::of(*this).carrier_->peer_address();
}

Address ConnectionFacts::local_host_port() const { return split_address(local_address()); }

Address ConnectionFacts::peer_host_port() const { return split_address(peer_address()); }

std::optional<bool> ConnectionFacts::is_local() const {
  return ConnectionCore::of(*this).carrier_->is_local();
}

std::string ConnectionFacts::path() const {
  const ConnectionCore& c = ConnectionCore::of(*this);
  const bool stood =
      c.state_ == State::kConnected || c.state_ == State::kClosed || c.lost_.established;
  if (!stood) return {};
  std::string line = c.carrier_->path();
  if (line.empty()) line = usual_path(*c.carrier_);
  if (c.rare_ && c.rare_->origin) line += c.rare_->origin->path;
  return printable(std::move(line));
}

std::vector<std::pair<std::string, std::string>> ConnectionFacts::info() const {
  const ConnectionCore& c = ConnectionCore::of(*this);
  std::vector<std::pair<std::string, std::string>> facts;
  if (c.rare_ && c.rare_->origin) facts = c.rare_->origin->facts;
  for (auto& fact : c.carrier_->info()) facts.push_back(std::move(fact));
  return facts;
}

std::string ConnectionFacts::peer_certificate() const {
  return ConnectionCore::of(*this).carrier_->peer_certificate();
}

std::string ConnectionFacts::peer_user() const {
  return ConnectionCore::of(*this).carrier_->peer_user();
}

}}  // namespace conn
