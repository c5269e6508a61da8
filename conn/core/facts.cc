// SPDX-License-Identifier: BSD-3-Clause
// Implements ConnectionFacts: each fact comes from the ConnectionCore or from its Carrier.

#include "conn/connection_facts.h"

#include <sys/socket.h>

#include "conn/connection_type.h"
#include "conn/core/connection_core.h"
#include "conn/core/in_place_state.h"
#include "conn/kit/resolver.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

/// Splits an address, known as a text and for socket calls, into host and port. A path is returned
/// whole, because the name of a Unix socket may look like host and port.
Address split(const std::string& text, const SocketAddress& address) {
  return address.family() == AF_UNIX ? Address{text, 0} : split_address(text);
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

int ConnectionFacts::fd() const noexcept {
  return ConnectionCore::of(*this).carrier_->facts().fd();
}

std::string ConnectionFacts::local_address() const {
  return ConnectionCore::of(*this).carrier_->facts().local_address();
}

std::string ConnectionFacts::peer_address() const {
  return ConnectionCore::of(*this).carrier_->facts().peer_address();
}

Address ConnectionFacts::local_host_port() const {
  const CarrierFacts& facts = ConnectionCore::of(*this).carrier_->facts();
  return split(facts.local_address(), facts.local_sockaddr());
}

Address ConnectionFacts::peer_host_port() const {
  const CarrierFacts& facts = ConnectionCore::of(*this).carrier_->facts();
  const SocketAddress peer = facts.peer_sockaddr();
  // Once the peer of a Unix socket is gone its address is unknown, and the text is this end's.
  return split(facts.peer_address(), peer.size != 0 ? peer : facts.local_sockaddr());
}

std::size_t ConnectionFacts::local_sockaddr(sockaddr_storage& to) const noexcept {
  const SocketAddress address = ConnectionCore::of(*this).carrier_->facts().local_sockaddr();
  to = address.storage;
  return address.size;
}

std::size_t ConnectionFacts::peer_sockaddr(sockaddr_storage& to) const noexcept {
  const SocketAddress address = ConnectionCore::of(*this).carrier_->facts().peer_sockaddr();
  to = address.storage;
  return address.size;
}

std::optional<bool> ConnectionFacts::is_local() const {
  return ConnectionCore::of(*this).carrier_->facts().is_local();
}

std::string ConnectionFacts::path() const { return ConnectionCore::of(*this).path_and_origin(); }

std::vector<std::pair<std::string, std::string>> ConnectionFacts::info() const {
  const ConnectionCore& c = ConnectionCore::of(*this);
  auto facts = c.info_and_origin();
  const std::size_t pending = c.in_place_ != nullptr ? c.in_place_->output().waiting() : 0;
  if (pending != 0) facts.emplace_back("pending", std::to_string(pending));
  return facts;
}

std::string ConnectionFacts::peer_certificate() const {
  return ConnectionCore::of(*this).carrier_->facts().peer_certificate();
}

std::string ConnectionFacts::peer_user() const {
  return ConnectionCore::of(*this).carrier_->facts().peer_user();
}

std::optional<PeerCredentials> ConnectionFacts::peer_credentials() const {
  return ConnectionCore::of(*this).carrier_->facts().peer_credentials();
}

}}  // namespace conn
