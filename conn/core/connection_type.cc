// SPDX-License-Identifier: BSD-3-Clause
#include "conn/connection_type.h"

namespace conn { inline namespace AECONN_ABI {

const OptionRow* ConnectionType::find_option(std::string_view key) const noexcept {
  const OptionTable* const table = option_table();
  return table != nullptr ? table->find(key) : nullptr;
}

ConnectionPtr ConnectionType::adopt(ae::EventLoop&, int) const {
  throw Error(std::string(name()) + " connections have no descriptor that could be taken over");
}

// By value, because overrides keep the handler.
// NOLINTBEGIN(performance-unnecessary-value-param)
ListenerPtr ConnectionType::adopt_listener(ae::EventLoop&, int, AcceptHandler,
                                           const Options&) const {
  throw Error(std::string(name()) + " listeners have no descriptor that could be taken over");
}

PortListenerPtr ConnectionType::open_port(ae::EventLoop&, const Endpoint&, PendingHandler) const {
  throw Error("a port of " + std::string(name()) + " is for one loop");
}

PortListenerPtr ConnectionType::adopt_port(ae::EventLoop&, int, PendingHandler,
                                           const Options&) const {
  throw Error(std::string(name()) + " listeners have no descriptor that could be taken over");
}

LoopAcceptorPtr ConnectionType::open_acceptor(ae::EventLoop&, const Endpoint&,
                                              AcceptHandler) const {
  throw Error("a port of " + std::string(name()) + " is for one loop");
}
// NOLINTEND(performance-unnecessary-value-param)

std::unique_ptr<Memory> ConnectionType::register_memory(ae::EventLoop&,
                                                        std::span<std::byte> bytes) const {
  return std::make_unique<Memory>(bytes);
}

std::vector<Capacity> ConnectionType::capacity(const Endpoint& endpoint,
                                               std::uint64_t connections) const {
  check(endpoint);
  return {descriptor_capacity(connections, capabilities().descriptor ? 1 : 0)};
}

}}  // namespace conn
