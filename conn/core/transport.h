// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the author of a transport implements besides Carrier: the functions of conn::ConnectionType,
// which describes them, and those that let one port serve several loops.

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "conn/connection_type.h"
#include "conn/core/pending_connection.h"

namespace conn { inline namespace AECONN_ABI {

/// A transport.
class AECONN_API Transport : public ConnectionType {
 public:
  virtual ~Transport() = default;  // protected in the base: programs do not delete types
  /// Every type is one of these.
  static const Transport& of(const ConnectionType& type) noexcept {
    return static_cast<const Transport&>(type);
  }

  // --- what every transport implements -----------------------------------------------------------
  virtual std::string_view name() const noexcept = 0;      ///< see ConnectionType
  virtual Capabilities capabilities() const noexcept = 0;  ///< see ConnectionType
  virtual void configure(const Options& options) = 0;      ///< see ConnectionType
  virtual void check(const Endpoint& endpoint) const = 0;  ///< see ConnectionType
  /// See ConnectionType.
  [[nodiscard]] virtual ListenerPtr listen(ae::EventLoop& loop, const Endpoint& endpoint,
                                           AcceptHandler accepted) const = 0;
  /// See ConnectionType.
  [[nodiscard]] virtual ConnectionPtr create(ae::EventLoop& loop) const = 0;

  // --- what it may implement ---------------------------------------------------------------------
  virtual const OptionTable* option_table() const noexcept {
    return nullptr;
  }  ///< see ConnectionType
  /// The default searches option_table().
  virtual const OptionRow* find_option(std::string_view key) const noexcept;
  /// The default throws Error: connections have no descriptor.
  [[nodiscard]] virtual ConnectionPtr adopt(ae::EventLoop& loop, int fd) const;
  /// The default throws Error: listeners have no descriptor.
  [[nodiscard]] virtual ListenerPtr adopt_listener(ae::EventLoop& loop, int fd,
                                                   AcceptHandler accepted,
                                                   const Options& options = {}) const;
  /// The default returns memory without effect.
  [[nodiscard]] virtual std::unique_ptr<Memory> register_memory(ae::EventLoop& loop,
                                                                std::span<std::byte> bytes) const;
  /// Whether connections of this type may use carriers of `other`, which must then not outlive what
  /// `other` keeps for the loop.
  virtual bool is_over(const ConnectionType& /*other*/) const noexcept { return false; }
  virtual bool has_pending_data(ae::EventLoop&) const { return false; }  ///< see ConnectionType
  virtual std::size_t process_pending_data(ae::EventLoop&) const {
    return 0;
  }                                              ///< see ConnectionType
  virtual void cleanup(ae::EventLoop&) const {}  ///< see ConnectionType
  /// The default: descriptors, if a connection has one.
  virtual std::vector<Capacity> capacity(const Endpoint& endpoint, std::uint64_t connections) const;
  /// The default: counters() by name. An override appends its own.
  virtual Statistics statistics(ae::EventLoop& loop) const;

  // --- one port, several loops: see conn/listener_group.h and conn/core/pending_connection.h ---
  /// As listen() and adopt_listener(), but hands out pending connections before their set-up
  /// begins. The default throws Error: the transport serves only one loop per port.
  [[nodiscard]] virtual PortListenerPtr open_port(ae::EventLoop& loop, const Endpoint& endpoint,
                                                  PendingHandler arrived) const;
  /// As adopt_listener(); see open_port().
  [[nodiscard]] virtual PortListenerPtr adopt_port(ae::EventLoop& loop, int fd,
                                                   PendingHandler arrived,
                                                   const Options& options = {}) const;
  /// Creates a loop's acceptor for the port listener's pending connections. `endpoint` is the same
  /// as for the port listener, or has only its options if that adopted a socket.
  [[nodiscard]] virtual LoopAcceptorPtr open_acceptor(ae::EventLoop& loop, const Endpoint& endpoint,
                                                      AcceptHandler accepted) const;
};

}}  // namespace conn
