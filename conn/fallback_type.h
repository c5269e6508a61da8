// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The transport for a list of schemes, rdma|tcp: connects over the first that is ready for data,
// and listens on every one that is available. A Registry creates it when a list is asked for.
//
// Once established, its connections are carried by the transport that was taken, and differ from
// that one's own in type() alone. Its listeners hand out the transports' own connections.
//
// Options: fallback-delay (250 ms) is the head start of each scheme; connect-timeout (5 s) covers
// all of them together; every other option is passed to the transports that know it.

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "conn/core/transport.h"
#include "conn/fallback.h"
#include "conn/lists/dial.h"

namespace conn { inline namespace AECONN_ABI {

/// The type that a Registry creates for a list of schemes.
class AECONN_API FallbackType final : public Transport {
 public:
  /// `candidates`: only scheme, type and unavailable are set; at least one has a type. `report`
  /// must outlive this object and may be empty.
  FallbackType(std::string name, std::vector<Candidate> candidates, const FallbackHandler& report);

  std::string_view name() const noexcept override { return name_; }
  /// The capabilities that all of them have; an established connection has those of the transport
  /// that carries it.
  Capabilities capabilities() const noexcept override;
  /// Passes the options on to the transports, to each those that it knows.
  void configure(const Options& options) override;
  /// The list's own options only; each transport has its own table.
  const OptionTable* option_table() const noexcept override { return &table_; }
  /// The option of the list itself, or of the first transport that has it.
  const OptionRow* find_option(std::string_view key) const noexcept override;
  void check(const Endpoint& endpoint) const override;
  /// Throws Error if none of them is available; Listener::not_served() reports if only some are.
  /// For port 0 all use the same port.
  ListenerPtr listen(ae::EventLoop& loop, const Endpoint& endpoint,
                     AcceptHandler accepted) const override;
  /// The connection also accepts endpoints with a subset of the schemes.
  ConnectionPtr create(ae::EventLoop& loop) const override;
  /// Adds fallbacks, and a counter such as fallback_refused for each reason for a scheme not taken.
  Statistics statistics(ae::EventLoop& loop) const override;

  bool is_over(const ConnectionType& other) const noexcept override;
  /// Of the first available transport whose devices may read memory (Capabilities::in_place).
  std::unique_ptr<Memory> register_memory(ae::EventLoop& loop,
                                          std::span<std::byte> bytes) const override;
  /// The limits of each available transport. Throws Error if none is available.
  std::vector<Capacity> capacity(const Endpoint& endpoint,
                                 std::uint64_t connections) const override;

  const std::vector<Candidate>& candidates() const noexcept {
    return candidates_;
  }  ///< in the order of the list
  /// The candidates for `endpoint`, with checked endpoints. Throws Error.
  std::vector<Candidate> candidates_for(const Endpoint& endpoint) const;
  /// Values of the list's own options.
  struct Times {
    ae::Duration delay;    ///< fallback-delay
    ae::Duration timeout;  ///< connect-timeout
  };
  /// The times of `endpoint`, which override the type's. Throws Error.
  Times times(const Endpoint& endpoint) const;
  /// Calls `open` for each available scheme with the endpoint to listen on, and passes each the
  /// port returned by the first. If a port chosen by the kernel is not free for all schemes, calls
  /// `close` to undo and starts again. Returns the schemes that threw Error; throws Error if all
  /// did.
  std::vector<Skipped> listen_on_each(
      const Endpoint& endpoint,
      const std::function<std::uint16_t(const Candidate&, const Endpoint&)>& open,
      const std::function<void()>& close) const;
  /// Updates the counters and runs the handler.
  void report(ae::EventLoop& loop, const Fallback& fallback) const;

 private:
  const std::string name_;
  const std::vector<Candidate> candidates_;
  const FallbackHandler& report_;
  const OptionTable& table_;
  mutable ae::Mutex mutex_;
  Options options_;  // guarded by mutex_; the list's own
};

/// The table of the list's own options.
AECONN_API const OptionTable& list_options();

}}  // namespace conn
