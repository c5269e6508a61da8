// SPDX-License-Identifier: BSD-3-Clause
#include "conn/core/transport.h"

#include <utility>

namespace conn { inline namespace AECONN_ABI {

namespace {

/// Applies `changes`, the last one first. Returns false, and has changed nothing, if one of them
/// must be prepared again.
bool apply(std::span<const std::unique_ptr<OptionsChange>> changes) {
  return changes.empty() || changes.front()->apply([&] { return apply(changes.subspan(1)); });
}

}  // namespace

void make_changes(std::span<const std::unique_ptr<OptionsChange>> changes) {
  do
    for (const auto& change : changes) change->prepare();
  while (!apply(changes));
}

void make_change(std::unique_ptr<OptionsChange> change) { make_changes({&change, 1}); }

// --- functions of ConnectionType, which programs call --------------------------------------------

std::string_view ConnectionType::name() const noexcept { return Transport::of(*this).name(); }

Capabilities ConnectionType::capabilities() const noexcept {
  return Transport::of(*this).capabilities();
}

void ConnectionType::configure(const Options& options) {
  static_cast<Transport&>(*this).configure(options);
}

const OptionTable* ConnectionType::option_table() const noexcept {
  return Transport::of(*this).option_table();
}

const OptionRow* ConnectionType::find_option(std::string_view key) const noexcept {
  return Transport::of(*this).find_option(key);
}

void ConnectionType::check(const Endpoint& endpoint) const { Transport::of(*this).check(endpoint); }

void ConnectionType::prepare(const Endpoint& endpoint) const {
  Transport::of(*this).prepare(endpoint);
}

void ConnectionType::prepare_client(const Endpoint& endpoint) const {
  Transport::of(*this).prepare_client(endpoint);
}

ListenerPtr ConnectionType::listen(ae::EventLoop& loop, const Endpoint& endpoint,
                                   AcceptHandler accepted) const {
  return Transport::of(*this).listen(loop, endpoint, std::move(accepted));
}

ConnectionPtr ConnectionType::create(ae::EventLoop& loop) const {
  return Transport::of(*this).create(loop);
}

ConnectionPtr ConnectionType::adopt(ae::EventLoop& loop, int fd) const {
  return Transport::of(*this).adopt(loop, fd);
}

ListenerPtr ConnectionType::adopt_listener(ae::EventLoop& loop, int fd, AcceptHandler accepted,
                                           const Options& options) const {
  return Transport::of(*this).adopt_listener(loop, fd, std::move(accepted), options);
}

std::unique_ptr<Memory> ConnectionType::register_memory(ae::EventLoop& loop,
                                                        std::span<std::byte> bytes) const {
  return Transport::of(*this).register_memory(loop, bytes);
}

bool ConnectionType::has_pending_data(ae::EventLoop& loop) const {
  return Transport::of(*this).has_pending_data(loop);
}

std::size_t ConnectionType::process_pending_data(ae::EventLoop& loop) const {
  return Transport::of(*this).process_pending_data(loop);
}

void ConnectionType::cleanup(ae::EventLoop& loop) const { Transport::of(*this).cleanup(loop); }

std::vector<Capacity> ConnectionType::capacity(const Endpoint& endpoint,
                                               std::uint64_t connections) const {
  return Transport::of(*this).capacity(endpoint, connections);
}

Statistics ConnectionType::statistics(ae::EventLoop& loop) const {
  return Transport::of(*this).statistics(loop);
}

// --- default implementations of virtual functions ------------------------------------------------

const OptionRow* Transport::find_option(std::string_view key) const noexcept {
  const OptionTable* const table = option_table();
  return table != nullptr ? table->find(key) : nullptr;
}

ConnectionPtr Transport::adopt(ae::EventLoop&, int) const {
  throw Error(std::string(name()) + " connections have no descriptor that could be taken over");
}

// These functions take the handlers by value, because overrides of them store the handlers.
// NOLINTBEGIN(performance-unnecessary-value-param)
ListenerPtr Transport::adopt_listener(ae::EventLoop&, int, AcceptHandler, const Options&) const {
  throw Error(std::string(name()) + " listeners have no descriptor that could be taken over");
}

PortListenerPtr Transport::open_port(ae::EventLoop&, const Endpoint&, PendingHandler) const {
  throw Error("a port of " + std::string(name()) + " is for one loop");
}

PortListenerPtr Transport::adopt_port(ae::EventLoop&, int, PendingHandler, const Options&) const {
  throw Error(std::string(name()) + " listeners have no descriptor that could be taken over");
}

LoopAcceptorPtr Transport::open_acceptor(ae::EventLoop&, const Endpoint&, AcceptHandler) const {
  throw Error("a port of " + std::string(name()) + " is for one loop");
}
// NOLINTEND(performance-unnecessary-value-param)

std::unique_ptr<Memory> Transport::register_memory(ae::EventLoop&,
                                                   std::span<std::byte> bytes) const {
  return std::make_unique<Memory>(bytes);
}

void Transport::prepare(const Endpoint& endpoint) const { check(endpoint); }
void Transport::prepare_client(const Endpoint& endpoint) const { check(endpoint); }

std::vector<Capacity> Transport::capacity(const Endpoint& endpoint,
                                          std::uint64_t connections) const {
  check(endpoint);
  return {descriptor_capacity(connections, capabilities().descriptor ? 1 : 0)};
}

}}  // namespace conn
