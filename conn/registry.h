// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The transports available to a program. A plain object that main() fills; there is no global one.

#include <memory>
#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "conn/connection_type.h"

namespace conn { inline namespace AECONN_ABI {

class FallbackType;
class Transport;

/// Transports, found by name.
class AECONN_API Registry {
 public:
  Registry();
  Registry(Registry&&) noexcept;             ///< moves the types
  Registry& operator=(Registry&&) noexcept;  ///< moves the types
  ~Registry();

  /// Adds a transport. Throws Error if the name is in use.
  ConnectionType& add(std::unique_ptr<Transport> type);
  /// Adds a scheme that this build or machine cannot serve, with the reason as a sentence.
  void add_unavailable(std::string name, std::string reason);

  /// Null if there is no such transport. A list of schemes, rdma|tcp, has its own type
  /// (conn/fallback_type.h), created on first use; at least one of its schemes must be available.
  ConnectionType* find(std::string_view name) const;
  /// As find(), but throws Error that lists the available names or gives the reason for
  /// unavailability.
  ConnectionType& require(std::string_view name) const;
  /// As require(), for a list of schemes; null if `name` is a single scheme.
  const FallbackType* list(std::string_view name) const;
  /// The types that were added, without those of lists; see lists().
  const std::vector<ConnectionType*>& types() const noexcept { return types_; }
  /// The types of lists (rdma|tcp) used so far; their statistics include `fallbacks`. They live as
  /// long as the registry. Any thread.
  std::vector<const ConnectionType*> lists() const;
  /// types() followed by lists().
  std::vector<const ConnectionType*> types_and_lists() const;
  /// Sets a handler for connections to a list of schemes that are established over another scheme
  /// than the first. Set it before connections are made.
  void on_fallback(FallbackHandler handler);

  /// Calls ConnectionType::listen() of the endpoint's transport.
  [[nodiscard]] ListenerPtr listen(ae::EventLoop& loop, const Endpoint& endpoint,
                                   AcceptHandler accepted) const;
  /// The same for a URL: "tcp://*:6379".
  [[nodiscard]] ListenerPtr listen(ae::EventLoop& loop, std::string_view url,
                                   AcceptHandler accepted) const;
  /// Calls ConnectionType::create() of the endpoint's transport.
  [[nodiscard]] ConnectionPtr create(ae::EventLoop& loop, const Endpoint& endpoint) const;
  /// create() and connect() in one call.
  [[nodiscard]] ConnectionPtr connect(ae::EventLoop& loop, std::string_view url,
                                      Connection::Handler done) const;

  bool has_pending_data(ae::EventLoop& loop) const;             ///< of any transport
  std::size_t process_pending_data(ae::EventLoop& loop) const;  ///< of all transports

 private:
  const std::string* why_unavailable(std::string_view name) const noexcept;
  FallbackType* find_list(std::string_view name) const;

  std::vector<std::unique_ptr<Transport>> owned_;
  std::vector<ConnectionType*> types_;
  std::vector<std::pair<std::string, std::string>> unavailable_;
  struct Lists;
  std::unique_ptr<Lists> lists_;
};

}}  // namespace conn
