// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// FallbackType: the transport for a list of schemes, rdma|tcp. It connects over the first scheme
// that is ready for data, and listens on every one that is available. A Registry creates it when a
// list is first used.
//
// An established connection of this type is carried by the transport that was chosen, and differs
// from a connection of that transport only in type(). Listeners of this type hand out connections
// of the transports themselves.
//
// Options: fallback-delay (250 ms) is the head start of each scheme before the next;
// connect-timeout (5 s) covers all of them together; every other option is passed to the transports
// that know it.

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

/// The transport that a Registry creates for a list of schemes.
class AECONN_API FallbackType final : public Transport {
 public:
  /// Creates the transport for a list of schemes. `candidates` are these schemes; of each, only
  /// scheme, type and unavailable are set, and at least one has a type. `report` is called for
  /// connections over another scheme than the first; it may be empty, and must outlive this object.
  FallbackType(std::string name, std::vector<Candidate> candidates, const FallbackHandler& report);

  std::string_view name() const noexcept override { return name_; }
  /// Returns the capabilities that all transports of the list have. An established connection has
  /// those of the transport that carries it.
  Capabilities capabilities() const noexcept override;
  /// Passes each option to those transports of the list that know it.
  void configure(const Options& options) override;
  /// Returns the table of the options that a list itself has, such as fallback-delay. The options
  /// of its transports are in their own tables.
  const OptionTable* option_table() const noexcept override { return &table_; }
  /// Returns the option `key` of the list itself, or of the first transport that has it; null if
  /// there is none.
  const OptionRow* find_option(std::string_view key) const noexcept override;
  void check(const Endpoint& endpoint) const override;
  /// Calls ConnectionType::prepare() of each scheme of the list that is available.
  void prepare(const Endpoint& endpoint) const override;
  /// Calls ConnectionType::prepare_client() of each scheme of the list that is available.
  void prepare_client(const Endpoint& endpoint) const override;
  /// Listens on all available schemes. Throws Error if none is available; if only some are,
  /// Listener::not_served() reports the others. For port 0 all schemes use the same port.
  ListenerPtr listen(ae::EventLoop& loop, const Endpoint& endpoint,
                     AcceptHandler accepted) const override;
  /// Creates a connection in state kNone. Its connect() also accepts an endpoint that names only
  /// some of this list's schemes.
  ConnectionPtr create(ae::EventLoop& loop) const override;
  /// Returns the counters that every transport has, the counter `fallbacks`, and one for each
  /// reason for which a scheme was skipped, such as fallback_refused.
  Statistics statistics(ae::EventLoop& loop) const override;

  bool is_over(const ConnectionType& other) const noexcept override;
  // These call the functions of each available transport of the list.
  bool has_pending_data(ae::EventLoop& loop) const override;
  std::size_t process_pending_data(ae::EventLoop& loop) const override;
  void cleanup(ae::EventLoop& loop) const override;

  /// Registers memory with the first available transport whose devices can read memory
  /// (Capabilities::in_place).
  std::unique_ptr<Memory> register_memory(ae::EventLoop& loop,
                                          std::span<std::byte> bytes) const override;
  /// Returns the limits that apply to each available transport of the list. Throws Error if none is
  /// available.
  std::vector<Capacity> capacity(const Endpoint& endpoint,
                                 std::uint64_t connections) const override;

  /// Returns the schemes of this transport's list, in the order of the list.
  const std::vector<Candidate>& candidates() const noexcept { return candidates_; }
  /// Returns the schemes to try for `endpoint`, each with its own endpoint, which has been checked.
  /// Throws Error if one is not valid.
  std::vector<Candidate> candidates_for(const Endpoint& endpoint) const;
  /// The values of the options that the list itself has, for one endpoint or as defaults.
  struct Times {
    ae::Duration delay;    ///< value of option fallback-delay
    ae::Duration timeout;  ///< value of option connect-timeout
  };
  /// Returns the fallback-delay and the connect-timeout for `endpoint`: the values of its options,
  /// or else the defaults of this type. Throws Error if a value is invalid.
  Times times(const Endpoint& endpoint) const;
  /// Calls `open` for each available scheme with the endpoint to listen on; `open` returns the
  /// addresses on which it listens. For port 0, the port that the first call returns is passed to
  /// the others. If that port is not free for all schemes, calls `close`, which must undo all calls
  /// of `open`, and starts again. A scheme with a socket of its own (shm with shm-path) comes last:
  /// `open` gets the addresses that the other schemes listen on, and is not called if there are
  /// none. Returns the schemes for which `open` was not called or threw Error; throws Error if no
  /// scheme is left.
  std::vector<Skipped> listen_on_each(
      const Endpoint& endpoint,
      const std::function<std::vector<Endpoint>(const Candidate&, const Endpoint&)>& open,
      const std::function<void()>& close) const;
  /// Counts a connection that uses another scheme than the list's first, and calls the program's
  /// handler for such connections.
  void report(ae::EventLoop& loop, const Fallback& fallback) const;

 private:
  const std::string name_;
  const std::vector<Candidate> candidates_;
  const FallbackHandler& report_;
  const OptionTable& table_;
  mutable ae::Mutex mutex_;
  // The defaults that configure() set for the list's own options; guarded by mutex_.
  Options options_;
};

/// Returns the table of the options that apply to a list of schemes as a whole, such as
/// fallback-delay, and not to one scheme in it.
AECONN_API const OptionTable& list_options();

}}  // namespace conn
