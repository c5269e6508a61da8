// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The transports a program has. A plain object that main() fills; there is no global one.

#include <memory>
#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "conn/connection_type.h"

namespace conn { inline namespace AECONN_ABI {

/// Transports by name.
class AECONN_API Registry {
 public:
  Registry();
  Registry(Registry&&) noexcept;             ///< takes the types along
  Registry& operator=(Registry&&) noexcept;  ///< takes the types along
  ~Registry();

  /// Throws Error if the name is taken.
  ConnectionType& add(std::unique_ptr<ConnectionType> type);
  /// A scheme this build or machine cannot serve, and the sentence that says why.
  void add_unavailable(std::string name, std::string reason);

  /// Null if there is none. A list of schemes, rdma|tcp, has a type of its own
  /// (conn/fallback_type.h), made when it is first asked for; it needs one of them.
  ConnectionType* find(std::string_view name) const;
  /// Throws Error that lists the names there are, or gives the reason it is unavailable.
  ConnectionType& require(std::string_view name) const;
  /// Those that were added, without the types of lists: lists() has these.
  const std::vector<std::unique_ptr<ConnectionType>>& types() const noexcept { return types_; }
  /// The types of lists, rdma|tcp, that somebody has asked for until now; their statistics have
  /// `fallbacks`. They live as long as the registry. Any thread.
  std::vector<const ConnectionType*> lists() const;
  /// types(), and lists() after them.
  std::vector<const ConnectionType*> types_and_lists() const;
  /// Is told whenever a connection to a list of schemes stands by another than the first. Set it
  /// before connections are made.
  void on_fallback(FallbackHandler handler);

  /// ConnectionType::listen() of the endpoint's transport.
  [[nodiscard]] ListenerPtr listen(ae::EventLoop& loop, const Endpoint& endpoint,
                                   AcceptHandler accepted) const;
  /// The same of a URL: "tcp://*:6379"
  [[nodiscard]] ListenerPtr listen(ae::EventLoop& loop, std::string_view url,
                                   AcceptHandler accepted) const;
  /// ConnectionType::create() of the endpoint's transport.
  [[nodiscard]] ConnectionPtr create(ae::EventLoop& loop, const Endpoint& endpoint) const;
  /// create() and connect() in one.
  [[nodiscard]] ConnectionPtr connect(ae::EventLoop& loop, std::string_view url,
                                      Connection::Handler done) const;

  bool has_pending_data(ae::EventLoop& loop) const;             ///< of any transport
  std::size_t process_pending_data(ae::EventLoop& loop) const;  ///< of all transports

 private:
  const std::string* why_unavailable(std::string_view name) const noexcept;
  ConnectionType* find_list(std::string_view name) const;

  std::vector<std::unique_ptr<ConnectionType>> types_;
  std::vector<std::pair<std::string, std::string>> unavailable_;
  struct Lists;
  std::unique_ptr<Lists> lists_;
};

}}  // namespace conn
