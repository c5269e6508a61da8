// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The transport rdma://host:port: a byte stream over RDMA verbs with the protocol Valkey Over RDMA.
// Its options are listed in docs/options.md and in the errors of RdmaType::configure().

#include <mutex>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "conn/core/transport.h"
#include "conn/kit/address_choice.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// The transport named "rdma", which serves URLs that begin with rdma://.
class AECONN_API RdmaType final : public Transport {
 public:
  RdmaType();
  std::string_view name() const noexcept override { return "rdma"; }
  Capabilities capabilities() const noexcept override {
    return {.half_close = true, .in_place = true, .reset = true};
  }
  void configure(const Options& options) override;
  const OptionTable* option_table() const noexcept override { return &table_; }
  void check(const Endpoint& endpoint) const override;
  ListenerPtr listen(ae::EventLoop& loop, const Endpoint& endpoint,
                     AcceptHandler accepted) const override;
  PortListenerPtr open_port(ae::EventLoop& loop, const Endpoint& endpoint,
                            PendingHandler arrived) const override;
  LoopAcceptorPtr open_acceptor(ae::EventLoop& loop, const Endpoint& endpoint,
                                AcceptHandler accepted) const override;
  /// Creates an outgoing connection that is not yet connecting. Throws Error with a one-sentence
  /// text if the machine has no RDMA.
  ConnectionPtr create(ae::EventLoop& loop) const override;
  std::unique_ptr<Memory> register_memory(ae::EventLoop& loop,
                                          std::span<std::byte> bytes) const override;
  bool has_pending_data(ae::EventLoop& loop) const override;
  std::size_t process_pending_data(ae::EventLoop& loop) const override;
  void cleanup(ae::EventLoop& loop) const override;
  Statistics statistics(ae::EventLoop& loop) const override;
  std::vector<Capacity> capacity(const Endpoint& endpoint,
                                 std::uint64_t connections) const override;

  /// Returns the options for a connection or listener: those of the transport, overridden by those
  /// in `endpoint`.
  Options options_for(const Endpoint& endpoint) const;
  /// Returns the record of addresses that were tried, with the results, by which the option
  /// `spread` chooses the next address.
  AddressBook& addresses() const noexcept { return addresses_; }

 private:
  // Guards options_, because configure() may run while other threads' loops create connections.
  mutable ae::Mutex mutex_;
  Options options_;
  mutable AddressBook addresses_;
  const OptionTable& table_;
};

}}}  // namespace conn::rdma
