// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// memory://name: connections whose two ends live on one thread, mostly on one loop, joined by
// bounded pipes in memory.
// For tests: it does all a transport has to do, serves several loops of a thread, and injects
// faults by probabilities from a seed. tests/support/local_transport.h is the small one that
// docs/add-a-transport.md explains.
//
//   registry.add(std::make_unique<conn::memory::MemoryType>());

#include <cstddef>
#include <cstdint>

#include "ae/abi.h"
#include "conn/core/transport.h"

namespace conn { inline namespace AECONN_ABI { namespace memory {

/// Probabilities: 0 never, 1 always. Drawn at each call of the operation they belong to.
struct Faults {
  double short_read = 0;   ///< read() gives less than it could
  double short_write = 0;  ///< write() takes less than it could
  double again = 0;        ///< read() or write() says EAGAIN without need
  double delay = 0;        ///< what a connect or a write sends arrives some iterations later
  double connect_error = 0, accept_error = 0, read_error = 0, write_error = 0;
  double reset = 0;  ///< a read or write finds the connection reset, at both ends
};

struct Config {
  std::uint64_t seed = 1;  ///< with the same calls in the same order, the same faults
  Faults faults = {};
  std::size_t pipe_size = 64 << 10;  ///< bytes under way in each direction (option pipe)
  std::size_t backlog = 511;         ///< arrivals that wait for accept (option backlog)
  std::uint64_t max_connections = Quota::kDefault;  ///< of a listener (option max-connections)
};

class MemoryType final : public Transport {
 public:
  explicit MemoryType(Config config = {}) : config_(config) {}

  std::string_view name() const noexcept override { return "memory"; }
  Capabilities capabilities() const noexcept override {
    return {.half_close = true, .reset = true};
  }
  void configure(const Options& options) override;
  void check(const Endpoint& endpoint) const override;
  ListenerPtr listen(ae::EventLoop& loop, const Endpoint& endpoint,
                     AcceptHandler accepted) const override;
  ConnectionPtr create(ae::EventLoop& loop) const override;
  /// For several loops of one thread.
  PortListenerPtr open_port(ae::EventLoop& loop, const Endpoint& endpoint,
                            PendingHandler arrived) const override;
  LoopAcceptorPtr open_acceptor(ae::EventLoop& loop, const Endpoint& endpoint,
                                AcceptHandler accepted) const override;
  /// The base's counters, then "faults": how many were injected.
  Statistics statistics(ae::EventLoop& loop) const override;

  const Config& config() const noexcept { return config_; }

 private:
  Config config_;
};

}}}  // namespace conn::memory
