// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The transport behind a list of schemes, rdma|tcp: connects by the first that is ready for data,
// listens on each that can be had. A Registry makes one where a list is asked for.
//
// Its connections delegate to the one that won: a copy less or a descriptor is that one's, and
// costs one call more. What arrives at its listeners is of the transports themselves.
//
// Options: fallback-delay (250 ms) is the head start of each way, connect-timeout (5 s) is for all
// together; every other goes to those transports that know it.

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "conn/connection_type.h"
#include "conn/fallback.h"
#include "conn/lists/dial.h"

namespace conn { inline namespace AECONN_ABI {

/// What Registry makes for a list of schemes.
class AECONN_API FallbackType final : public ConnectionType {
 public:
  /// `ways`: scheme, type and unavailable alone; one type at least. `told` outlives this and may be
  /// empty.
  FallbackType(std::string name, std::vector<Way> ways, const FallbackHandler& told);

  std::string_view name() const noexcept override { return name_; }
  /// What all of them have. in_place: no; reserve() and peek() are those of the one that won, but
  /// what send() is given is copied.
  Capabilities capabilities() const noexcept override;
  /// Goes on to the transports, each with the options it knows.
  void configure(const Options& options) override;
  /// Of the list itself; the transports have their own.
  const OptionTable* option_table() const noexcept override { return &table_; }
  /// Of the list itself, or else of the first transport that has it.
  const OptionRow* find_option(std::string_view key) const noexcept override;
  void check(const Endpoint& endpoint) const override;
  /// Throws Error where none of them can be had; Listener::not_served() tells of some. For port 0
  /// all have the same port.
  ListenerPtr listen(ae::EventLoop& loop, const Endpoint& endpoint,
                     AcceptHandler accepted) const override;
  /// Also connects to endpoints of some of its schemes.
  ConnectionPtr create(ae::EventLoop& loop) const override;
  /// fallbacks, and fallback_refused and so on by the reason of each way that was not taken.
  Statistics statistics(ae::EventLoop& loop) const override;

  /// Those of each that can be had. Throws Error where none can.
  std::vector<Capacity> capacity(const Endpoint& endpoint,
                                 std::uint64_t connections) const override;

  const std::vector<Way>& ways() const noexcept { return ways_; }  ///< in the order of the list
  /// The ways to `endpoint`, checked. Throws Error.
  std::vector<Way> ways_to(const Endpoint& endpoint) const;
  /// The list's own options.
  struct Times {
    ae::Duration delay;    ///< fallback-delay
    ae::Duration timeout;  ///< connect-timeout
  };
  /// Of `endpoint`, over the type's. Throws Error.
  Times times(const Endpoint& endpoint) const;
  /// Calls `open` for each way that can be there, with where to listen, and gives each the port
  /// that the first returned. Where a port of the kernel's choice is not free for all, `close`
  /// takes everything back and it begins again. Returns those that threw Error, or throws it if all
  /// did.
  std::vector<Skipped> listen_on_each(
      const Endpoint& endpoint,
      const std::function<std::uint16_t(const Way&, const Endpoint&)>& open,
      const std::function<void()>& close) const;
  /// Counts, and tells the handler.
  void took(ae::EventLoop& loop, const Fallback& fallback) const;

 private:
  const std::string name_;
  const std::vector<Way> ways_;
  const FallbackHandler& told_;
  const OptionTable& table_;
  mutable ae::Mutex mutex_;
  Options options_;  // mutex_: its own
};

/// The options of a list itself.
AECONN_API const OptionTable& list_options();

}}  // namespace conn
