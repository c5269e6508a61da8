// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The types tls, tls+unix, tls+shm, tls+vsock and tls+rdma: TLS 1.2 and 1.3 (RFC 5246, RFC 8446)
// over any other transport. A URL carries the options of both layers, for example
// tls+rdma://10.0.0.1:6379?ca=/etc/ca.pem&window=256k.
//
//   auto& tcp = registry.add(std::make_unique<conn::tcp::TcpType>());
//   auto& tls = registry.add(std::make_unique<conn::tls::TlsType>(tcp));
//   tls.configure({{"cert", "server.pem"}, {"key", "server.key"}});

#include <memory>
#include <string>

#include "ae/abi.h"
#include "conn/core/transport.h"
#include "conn/tls/engine/errc.h"
#include "conn/tls/engine/role.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

class Context;
class ContextSource;
class LoopState;

/// The connection type of TLS over one other transport. Unlike other types it may be configured at
/// any time and from any thread: existing connections keep their settings; new connections, also of
/// existing listeners, use the new certificates and settings.
class AECONN_API TlsType final : public Transport {
 public:
  /// Makes the type of TLS over `below`, which must outlive this type. Its name is "tls" over tcp,
  /// else "tls+" followed by the name of `below`.
  explicit TlsType(const ConnectionType& below);
  ~TlsType() override;

  std::string_view name() const noexcept override { return name_; }
  Capabilities capabilities() const noexcept override;
  std::vector<Capacity> capacity(const Endpoint& endpoint,
                                 std::uint64_t connections) const override;
  /// Takes options of TLS and of the layer below (for connections made through this type). Reads
  /// the files again, even if the options are unchanged. If it throws Error (a certificate cannot
  /// be read, a key does not match), nothing changes and the previous configuration stays in use.
  void configure(const Options& options) override;
  std::unique_ptr<OptionsChange> change(const Options& options) override;
  /// Reads all files again, without a change of the options: those that configure() reads. Throws
  /// Error like configure(), and then changes nothing.
  void reload_tls() override;
  /// Returns the table of TLS options. The layer below has a table of its own.
  const OptionTable* option_table() const noexcept override { return &table_; }
  /// Returns the TLS option `key`, or else the option `key` of the layer below; null if neither has
  /// it.
  const OptionRow* find_option(std::string_view key) const noexcept override;
  void check(const Endpoint& endpoint) const override;
  void prepare(const Endpoint& endpoint) const override;
  void prepare_client(const Endpoint& endpoint) const override;
  ListenerPtr listen(ae::EventLoop& loop, const Endpoint& endpoint,
                     AcceptHandler accepted) const override;
  ConnectionPtr create(ae::EventLoop& loop) const override;
  ConnectionPtr adopt(ae::EventLoop& loop, int fd) const override;
  /// Takes over a listening socket, as adopt_listener() of the transport below TLS does, and runs a
  /// handshake on each accepted connection. `options` may contain options of both layers.
  ListenerPtr adopt_listener(ae::EventLoop& loop, int fd, AcceptHandler accepted,
                             const Options& options = {}) const override;
  /// Returns a listener of the layer below, which accepts connections without TLS for several
  /// loops. The acceptor of each loop (open_acceptor()) then runs the handshakes.
  PortListenerPtr open_port(ae::EventLoop& loop, const Endpoint& endpoint,
                            PendingHandler arrived) const override;
  PortListenerPtr adopt_port(ae::EventLoop& loop, int fd, PendingHandler arrived,
                             const Options& options = {}) const override;
  LoopAcceptorPtr open_acceptor(ae::EventLoop& loop, const Endpoint& endpoint,
                                AcceptHandler accepted) const override;
  /// Returns whether `other` is the transport below TLS, or one that lies further below.
  bool is_over(const ConnectionType& other) const noexcept override {
    return &other == &below_ || of(below_).is_over(other);
  }
  bool has_pending_data(ae::EventLoop& loop) const override;
  std::size_t process_pending_data(ae::EventLoop& loop) const override;
  Statistics statistics(ae::EventLoop& loop) const override;

  /// Sets the pass phrase for encrypted keys without key-pass-file. Takes effect with the next
  /// configure(). The library overwrites its copy on release; erasing the caller's copy is up to
  /// the caller.
  void set_pass_phrase(std::string_view phrase);

  /// Begins TLS on an established connection of the transport below TLS (STARTTLS, an adopted
  /// socket) and removes all its handlers. `done` runs once, as that of connect(); close() cancels
  /// it. `below` must be of the type that this type is over and must not be in one of its own
  /// handlers. Bytes that peek() has shown belong to TLS. A client sends `name` as SNI and checks
  /// the certificate against it, unless option server-name is set. Throws Error as listen() would,
  /// or if output of `below` waits and flush() cannot pass it on; `below` is then closed.
  [[nodiscard]] ConnectionPtr wrap(ConnectionPtr below, Role role, const std::string& name,
                                   Connection::Handler done, const Options& options = {}) const;

 private:
  friend class Handshake;  // creates the connection below TLS, by below_
  class Contexts;
  /// Returns `endpoint` as the layer below TLS needs it: with that layer's scheme and options.
  Endpoint below_endpoint(const Endpoint& endpoint) const;
  Options split_below(const Options& given) const;
  Options below_options(const Options& given) const;
  /// Returns the context for a connection on the loop of `state`. With reload=auto reads files
  /// again that have changed.
  std::shared_ptr<const Context> context_for(const Options& endpoint, LoopState& state) const;
  /// Returns the value of option server-name if `endpoint` or this type has it, else `host`.
  std::string peer_name(const Options& endpoint, const std::string& host) const;
  /// Returns the source of contexts for a listener, which must have a server certificate. Throws an
  /// Error whose text begins with `where`.
  std::shared_ptr<const ContextSource> source_for(const std::string& where,
                                                  const Options& endpoint) const;
  const ConnectionType& below_;
  const std::string name_;
  const std::unique_ptr<Contexts> contexts_;
  const OptionTable& table_;
};

}}}  // namespace conn::tls
