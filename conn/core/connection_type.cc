// SPDX-License-Identifier: BSD-3-Clause
#include "conn/connection_type.h"

#include "conn/core/connection_set.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

void append(Statistics& to, const std::string& name, const Histogram& times) {
  if (times.count() == 0) return;
  for (std::size_t i = 0; i < Histogram::kBounds.size(); ++i)
    to.emplace_back(name + "le_" + std::to_string(Histogram::kBounds[i]), times.up_to(i));
  to.emplace_back(name + "sum_ns", times.sum_ns());
  to.emplace_back(name + "count", times.count());
}

}  // namespace

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

LoopCounters& ConnectionType::counters(ae::EventLoop& loop) const {
  return ConnectionSet::of(loop).counters(*this);
}

Statistics ConnectionType::statistics(ae::EventLoop& loop) const {
  const LoopCounters& c = counters(loop);
  Statistics all = {{"open", c.open},
                    {"accepted", c.accepted},
                    {"connected", c.connected},
                    {"failed", c.failed},
                    {"closed", c.closed},
                    {"accept_errors", c.accept_errors},
                    {"refused", c.refused},
                    {"bytes_read", c.bytes_read},
                    {"bytes_written", c.bytes_written},
                    {"short_writes", c.short_writes}};
  for (std::size_t i = 0; i < kWhyNots; ++i) {
    constexpr std::string_view kFallback = "fallback_";
    if (c.not_connected[i] == 0) continue;
    const std::string_view reason = counter_of(static_cast<SkipReason>(i)).substr(kFallback.size());
    all.emplace_back("connect_failed_" + std::string(reason), c.not_connected[i]);
  }
  append(all, "connect_time_", c.connect_time);
  append(all, "accept_time_", c.accept_time);
  return all;
}

}}  // namespace conn
