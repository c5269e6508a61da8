// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The transport shm, URL shm:///path/of/the.sock: two processes of one machine share memory, see
// docs/shm.md. In a list of schemes the path is that of option shm-path, and the URL's hosts and
// port, or path, are the destination that the server of the socket has to serve.

#include <memory>

#include "ae/abi.h"
#include "conn/core/transport.h"
#include "conn/tcp/unix_type.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {

struct Settings;

/// The transport shm: connections over shared memory, set up through a Unix socket.
class AECONN_API ShmType final : public Transport {
 public:
  ShmType();

  std::string_view name() const noexcept override { return "shm"; }
  Capabilities capabilities() const noexcept override {
    return {.half_close = true, .rebind = true, .reset = true};
  }
  void configure(const Options& options) override;
  void check(const Endpoint& endpoint) const override;
  ListenerPtr listen(ae::EventLoop& loop, const Endpoint& endpoint,
                     AcceptHandler accepted) const override;
  ConnectionPtr create(ae::EventLoop& loop) const override;
  const OptionTable* option_table() const noexcept override { return &table_; }
  ListenerPtr adopt_listener(ae::EventLoop& loop, int fd, AcceptHandler accepted,
                             const Options& options = {}) const override;
  PortListenerPtr open_port(ae::EventLoop& loop, const Endpoint& endpoint,
                            PendingHandler arrived) const override;
  PortListenerPtr adopt_port(ae::EventLoop& loop, int fd, PendingHandler arrived,
                             const Options& options = {}) const override;
  LoopAcceptorPtr open_acceptor(ae::EventLoop& loop, const Endpoint& endpoint,
                                AcceptHandler accepted) const override;
  std::vector<Capacity> capacity(const Endpoint& endpoint,
                                 std::uint64_t connections) const override;
  Statistics statistics(ae::EventLoop& loop) const override;

  /// Returns the type's own settings if the endpoint has no options, else new settings with the
  /// endpoint's options added. Throws Error.
  std::shared_ptr<const Settings> settings_for(const Options& endpoint) const;
  /// Returns the record of the addresses to which connections of this type lead.
  AddressBook& addresses() const noexcept { return socket_.addresses(); }
  /// Returns the endpoint of the Unix socket. Its path is that of option shm-path, if given. Its
  /// options are those for the socket, among the options of this type and of `endpoint`.
  Endpoint socket_endpoint(const Endpoint& endpoint) const;

 private:
  const OptionTable& table_;
  const tcp::UnixType socket_;  // makes the listening sockets
  Options options_;
  std::shared_ptr<const Settings> settings_;
};

}}}  // namespace conn::shm
