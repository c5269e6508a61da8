// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// tls, tls+unix, tls+rdma: TLS 1.2 and 1.3 (RFC 5246, RFC 8446) over any other transport. A URL
// carries the options of both layers: tls+rdma://10.0.0.1:6379?ca=/etc/ca.pem&window=256k.
//
//   auto& tcp = registry.add(std::make_unique<conn::tcp::TcpType>());
//   auto& tls = registry.add(std::make_unique<conn::tls::TlsType>(tcp));
//   tls.configure({{"cert", "server.pem"}, {"key", "server.key"}});

#include <memory>
#include <string>

#include "ae/abi.h"
#include "conn/connection_type.h"
#include "conn/tls/engine/errc.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

class Context;
class ContextSource;

/// Unlike other types it may be configured at any time and from any thread: what exists keeps what
/// it has, new connections of listeners that exist already take the new certificates and settings.
class AECONN_API TlsType final : public ConnectionType {
 public:
  /// TLS over `below`, which must outlive it. It is called "tls" over tcp, else "tls+" and the
  /// name.
  explicit TlsType(const ConnectionType& below);
  ~TlsType() override;

  std::string_view name() const noexcept override { return name_; }
  Capabilities capabilities() const noexcept override;
  std::vector<Capacity> capacity(const Endpoint& endpoint,
                                 std::uint64_t connections) const override;
  /// Options of this layer and of the one below (for what is made through this type). Reads the
  /// files again, also when the options are what they were. An Error (a certificate that cannot be
  /// read, a key that does not fit) changes nothing: all goes on with what was there.
  void configure(const Options& options) override;
  /// Of this layer; the one below has its own.
  const OptionTable* option_table() const noexcept override { return &table_; }
  /// Its own, or else that of the layer below.
  const OptionRow* find_option(std::string_view key) const noexcept override;
  void check(const Endpoint& endpoint) const override;
  ListenerPtr listen(ae::EventLoop& loop, const Endpoint& endpoint,
                     AcceptHandler accepted) const override;
  ConnectionPtr create(ae::EventLoop& loop) const override;
  ConnectionPtr adopt(ae::EventLoop& loop, int fd) const override;
  /// As adopt() of the type below, with a handshake for each arrival. `options` may be of both
  /// layers.
  ListenerPtr adopt_listener(ae::EventLoop& loop, int fd, AcceptHandler accepted,
                             const Options& options = {}) const override;
  /// What arrives below; the handshakes are the receivers'.
  PortListenerPtr open_port(ae::EventLoop& loop, const Endpoint& endpoint,
                            PendingHandler arrived) const override;
  PortListenerPtr adopt_gate(ae::EventLoop& loop, int fd, PendingHandler arrived,
                             const Options& options = {}) const override;
  LoopAcceptorPtr open_acceptor(ae::EventLoop& loop, const Endpoint& endpoint,
                                AcceptHandler accepted) const override;
  /// Of this layer and of the one below.
  bool has_pending_data(ae::EventLoop& loop) const override;
  std::size_t process_pending_data(ae::EventLoop& loop) const override;
  Statistics statistics(ae::EventLoop& loop) const override;

  /// The pass phrase for encrypted keys that come without key-pass-file. Takes effect with the next
  /// configure(). Kept in memory that is cleansed; the caller's copy is the caller's.
  void set_pass_phrase(std::string_view phrase);

  /// Begins TLS on a connection that is connected below (STARTTLS, an adopted socket), whose
  /// handlers are all removed. `done` runs
  /// once, as connect()'s; close() cancels it. `below` must be of the type this one is over, with
  /// nothing of its own unread or unwritten, and not be in one of its own handlers. `name` is what
  /// a client sends as SNI and checks the certificate against, unless option server-name says
  /// otherwise. Throws Error as listen() would; `below` is closed then.
  [[nodiscard]] ConnectionPtr wrap(ConnectionPtr below, Role role, const std::string& name,
                                   Connection::Handler done, const Options& options = {}) const;

 private:
  friend class TlsConnection;
  class Contexts;
  /// Where `endpoint` leads below, with the options of that layer.
  Endpoint below_endpoint(const Endpoint& endpoint) const;
  Options split_below(const Options& given) const;
  Options below_options(const Options& given) const;
  std::shared_ptr<const Context> context_for(const Options& endpoint) const;
  /// Option server-name, or the host.
  std::string peer_name(const Options& endpoint, const std::string& host) const;
  /// For a listener: has a server's certificate. Throws Error that begins with `where`.
  std::shared_ptr<const ContextSource> source_for(const std::string& where,
                                                  const Options& endpoint) const;
  const ConnectionType& below_;
  const std::string name_;
  const std::unique_ptr<Contexts> contexts_;
  const OptionTable& table_;
};

}}}  // namespace conn::tls
