// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The transport unix, URL unix:///path/of/the.sock, or unix:@name for an abstract name: no file is
// made, and every process of the network namespace may connect.
//
// Options: mode (octal permissions of the socket file), group (of the file), backlog, accept-batch,
// max-connections, proxy-protocol (listening); connect-timeout (connecting); send-buffer,
// idle-timeout (both). close() never lingers: bytes that a Unix socket accepted have been
// delivered.

#include "ae/abi.h"
#include "conn/tcp/socket_type.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

/// The transport unix: connections over Unix stream sockets.
class AECONN_API UnixType final : public SocketType {
 public:
  UnixType() = default;
  /// A function like SocketType::refusal(): returns the bytes that tell a client why it is refused.
  using Refusal = std::string (*)(std::string_view why);
  /// Creates the type with which `user`, a transport over Unix sockets with the scheme `name`,
  /// makes its listening sockets. Their clients may pass descriptors, and their connections are
  /// counted in the counters of `user`. `name` must outlive this object. Throws std::bad_alloc.
  UnixType(std::string_view name, const ConnectionType* user, Refusal its_refusal)
      : name_(name), user_(user), refusal_(its_refusal) {}
  std::string refusal(std::string_view why) const override {
    return refusal_ == nullptr ? std::string() : refusal_(why);
  }
  std::string_view name() const noexcept override { return name_; }
  const ConnectionType& counted_as() const noexcept override { return user_ ? *user_ : *this; }
  const OptionTable* option_table() const noexcept override { return &table_; }

 protected:
  bool is_family(int family) const noexcept override { return family == AF_UNIX; }
  bool takes_descriptors() const noexcept override { return user_ != nullptr; }
  Settings parse(const Options& options) const override { return unix_settings(options); }
  void check_address(const Endpoint& endpoint) const override;
  std::vector<Bound> bind(const Endpoint& endpoint, const Settings& settings) const override;

 private:
  std::string_view name_ = "unix";
  const ConnectionType* user_ = nullptr;
  Refusal refusal_ = nullptr;
  // Table of this type's options; built by the constructor, since building it may throw.
  const OptionTable& table_ = unix_options();
};

}}}  // namespace conn::tcp
