// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Base class of the connection types tcp, unix and vsock.

#include <memory>

#include "ae/abi.h"
#include "conn/core/transport.h"
#include "conn/kit/address_choice.h"
#include "conn/tcp/settings.h"
#include "conn/tcp/socket.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

class SocketListener;

/// The handler that receives what a listening socket accepts. Exactly one of the two members is
/// set.
struct ListenTo {
  AcceptHandler accepted = nullptr;  ///< receives each connection that a listener accepts
  /// Receives each accepted socket of a listener whose connections belong to several loops.
  PendingHandler arrived = nullptr;
};

/// Base of TcpType, UnixType and VsockType: everything that their sockets have in common.
class AECONN_API SocketType : public Transport {
 public:
  Capabilities capabilities() const noexcept final {
    return {.half_close = true,
            .rebind = true,
            .descriptor = true,
            .integrity = false,
            .reset = is_tcp(),
            .reuseport = is_tcp()};
  }
  /// Sets the options of this type. They replace the options of an earlier call.
  void configure(const Options& options) final;
  void check(const Endpoint& endpoint) const final;
  ListenerPtr listen(ae::EventLoop& loop, const Endpoint& endpoint,
                     AcceptHandler accepted) const final;
  ConnectionPtr create(ae::EventLoop& loop) const final;
  ConnectionPtr adopt(ae::EventLoop& loop, int fd) const final;
  ListenerPtr adopt_listener(ae::EventLoop& loop, int fd, AcceptHandler accepted,
                             const Options& options = {}) const final;
  PortListenerPtr open_port(ae::EventLoop& loop, const Endpoint& endpoint,
                            PendingHandler arrived) const final;
  PortListenerPtr adopt_port(ae::EventLoop& loop, int fd, PendingHandler arrived,
                             const Options& options = {}) const final;
  LoopAcceptorPtr open_acceptor(ae::EventLoop& loop, const Endpoint& endpoint,
                                AcceptHandler accepted) const final;

  /// Returns the type's own settings if the endpoint has no options, else new settings with the
  /// endpoint's options added. Throws Error.
  std::shared_ptr<const Settings> settings_for(const Options& endpoint) const;
  /// Returns the record of the addresses to which connections of this type lead. Option spread uses
  /// it to choose an address.
  AddressBook& addresses() const noexcept { return addresses_; }
  /// Returns the transport whose counters count the connections of this type's listeners.
  virtual const ConnectionType& counted_as() const noexcept { return *this; }
  /// Returns the bytes that tell a client why it is refused before its connection is set up; empty,
  /// the default: the client is told nothing.
  virtual std::string refusal(std::string_view /*why*/) const { return {}; }

 protected:
  /// A listening socket and the function that cleans up after it.
  struct Bound {
    Fd fd;
    Endpoint endpoint;
    /// Called when listening ends, for example to remove the socket file; may be empty.
    std::function<void()> remove;
    /// True: the program has made the socket, so other processes may listen on it, too.
    bool adopted = false;
    bool backlog_known = true;  ///< whether the socket's backlog is the value of option backlog
  };
  virtual bool is_family(int family) const noexcept = 0;
  /// Whether clients may pass descriptors over the sockets that listeners of this type accept.
  virtual bool takes_descriptors() const noexcept { return false; }
  virtual bool is_tcp() const noexcept { return false; }
  virtual Settings parse(const Options& options) const = 0;
  virtual void check_address(const Endpoint& endpoint) const = 0;
  /// Creates the listening sockets of `endpoint` and returns them, at least one. Throws Error.
  virtual std::vector<Bound> bind(const Endpoint& endpoint, const Settings& settings) const = 0;

 private:
  friend class SocketListener;
  int check_socket(int fd) const;
  std::unique_ptr<SocketListener> listen_to(ae::EventLoop& loop, const Endpoint& endpoint,
                                            ListenTo to) const;
  std::unique_ptr<SocketListener> adopt_to(ae::EventLoop& loop, int fd, const Options& options,
                                           ListenTo to) const;
  Options options_;
  mutable AddressBook addresses_;
  std::shared_ptr<const Settings> settings_ = std::make_shared<Settings>();
};

}}}  // namespace conn::tcp
