// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Transport: what the author of a transport implements besides Carrier. These are the functions of
// conn::ConnectionType, whose comments describe them, and those that let one port serve several
// loops.

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "conn/connection_type.h"
#include "conn/core/pending_connection.h"

namespace conn { inline namespace AECONN_ABI {

/// A call of configure() in two steps, so that several transports change together or not at all.
class AECONN_API OptionsChange {
 public:
  virtual ~OptionsChange() = default;
  /// Reads what the new options need, such as files. Throws Error if they cannot be used.
  virtual void prepare() = 0;
  /// Puts the options into effect after `others`, the other transports' changes, have returned
  /// true, and returns true. Returns false, and changes nothing, if `others` return false, or if
  /// prepare() must be called again first, for what listeners have begun to use since then.
  virtual bool apply(const std::function<bool()>& others) = 0;
};
/// Makes all `changes`. If a preparation throws, none takes effect.
AECONN_API void make_changes(std::span<const std::unique_ptr<OptionsChange>> changes);
/// Makes one change alone.
AECONN_API void make_change(std::unique_ptr<OptionsChange> change);

/// The base class of all transports. Programs use its base class ConnectionType.
class AECONN_API Transport : public ConnectionType {
 public:
  // The destructor is protected in the base class, because programs do not delete transports.
  virtual ~Transport() = default;
  /// Returns the Transport that implements a ConnectionType; every ConnectionType is one.
  static const Transport& of(const ConnectionType& type) noexcept {
    return static_cast<const Transport&>(type);
  }

  // --- what every transport implements -----------------------------------------------------------
  /// Name of the transport, used as the scheme of URLs.
  virtual std::string_view name() const noexcept = 0;
  /// The operations and properties that this transport supports.
  virtual Capabilities capabilities() const noexcept = 0;
  /// Sets the default values of the transport's options.
  virtual void configure(const Options& options) = 0;
  /// Throws Error if the endpoint is not valid for this transport; see ConnectionType::check(). The
  /// core also calls it before Carrier::connect(), with any endpoint that a program has filled in.
  virtual void check(const Endpoint& endpoint) const = 0;
  /// Listens for connections on `endpoint`; see ConnectionType::listen().
  [[nodiscard]] virtual ListenerPtr listen(ae::EventLoop& loop, const Endpoint& endpoint,
                                           AcceptHandler accepted) const = 0;
  /// Creates a connection in state kNone; see ConnectionType::create().
  [[nodiscard]] virtual ConnectionPtr create(ae::EventLoop& loop) const = 0;

  // --- what a transport may implement ------------------------------------------------------------
  /// Returns the table of the transport's options; null: it has none.
  virtual const OptionTable* option_table() const noexcept { return nullptr; }
  /// Returns the description of the option named `key`, of this transport or of a type below it;
  /// null: there is none. The default searches option_table().
  virtual const OptionRow* find_option(std::string_view key) const noexcept;
  /// Begins what configure() does, for a list of schemes that configures several transports
  /// together; throws Error for options that configure() refuses. The default returns null, for a
  /// transport whose configure() reads no file and so refuses only what check() refuses, too.
  virtual std::unique_ptr<OptionsChange> change(const Options& /*options*/) { return nullptr; }
  /// Checks `endpoint`, and reads the files that a listener on it needs, such as certificates; see
  /// ConnectionType::prepare(). The default calls check().
  virtual void prepare(const Endpoint& endpoint) const;
  /// Checks `endpoint`, and reads the files that a client's connections to it need; see
  /// ConnectionType::prepare_client(). The default calls check().
  virtual void prepare_client(const Endpoint& endpoint) const;
  /// Reads all TLS files again; see Registry::reload_tls(). The default does nothing.
  virtual void reload_tls() {}
  /// Turns a connected socket into a connection; see ConnectionType::adopt(). The default throws
  /// Error: the transport has no connections with a descriptor.
  [[nodiscard]] virtual ConnectionPtr adopt(ae::EventLoop& loop, int fd) const;
  /// Turns a listening socket into a listener; see ConnectionType::adopt_listener(). The default
  /// throws Error: the transport has no listeners with a descriptor.
  [[nodiscard]] virtual ListenerPtr adopt_listener(ae::EventLoop& loop, int fd,
                                                   AcceptHandler accepted,
                                                   const Options& options = {}) const;
  /// Registers memory with the transport's devices; see ConnectionType::register_memory(). The
  /// default returns an object without effect.
  [[nodiscard]] virtual std::unique_ptr<Memory> register_memory(ae::EventLoop& loop,
                                                                std::span<std::byte> bytes) const;
  /// Returns whether connections of this type may use Carriers of the type `other`. Such
  /// connections must end before `other` frees what it keeps for the loop.
  virtual bool is_over(const ConnectionType& /*other*/) const noexcept { return false; }
  /// Returns whether handlers are due on the loop that no descriptor announces.
  virtual bool has_pending_data(ae::EventLoop&) const { return false; }
  /// Runs handlers that are due on the loop; returns how many ran.
  virtual std::size_t process_pending_data(ae::EventLoop&) const { return 0; }
  /// Frees unused resources that the transport keeps on one loop for reuse.
  virtual void cleanup(ae::EventLoop&) const {}
  /// Returns the limits on the number of connections; see ConnectionType::capacity(). The default
  /// returns the limit of descriptors, if each connection uses a descriptor.
  virtual std::vector<Capacity> capacity(const Endpoint& endpoint, std::uint64_t connections) const;
  /// Returns the names and values of the counters on one loop. The default returns those in
  /// counters(); an override appends its own.
  virtual Statistics statistics(ae::EventLoop& loop) const;

  // --- one port, several loops: see conn/listener_group.h and conn/core/pending_connection.h ---
  /// Listens on `endpoint` like listen(), but hands out pending connections before their set-up
  /// begins, for a port that serves several loops. The default throws Error, for a transport that
  /// serves only one loop per port.
  [[nodiscard]] virtual PortListenerPtr open_port(ae::EventLoop& loop, const Endpoint& endpoint,
                                                  PendingHandler arrived) const;
  /// Serves a socket that is already listening like adopt_listener(), but hands out pending
  /// connections like open_port(). The port listener uses a duplicate of `fd`: `fd` stays the
  /// caller's, who closes it once the set-up has succeeded. The default throws Error.
  [[nodiscard]] virtual PortListenerPtr adopt_port(ae::EventLoop& loop, int fd,
                                                   PendingHandler arrived,
                                                   const Options& options = {}) const;
  /// Creates the acceptor of one loop for the port listener's pending connections. `endpoint` is
  /// that of the port listener; if the port listener adopted a socket, `endpoint` has only options.
  /// The default throws Error.
  [[nodiscard]] virtual LoopAcceptorPtr open_acceptor(ae::EventLoop& loop, const Endpoint& endpoint,
                                                      AcceptHandler accepted) const;
};

}}  // namespace conn
