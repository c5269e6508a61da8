// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Registry: the transports available to a program. It is a plain object that main() fills; there is
// no global registry.

#include <memory>
#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "conn/connection_type.h"

namespace conn { inline namespace AECONN_ABI {

class FallbackType;
class Transport;

/// The transports that a program can use, found by the scheme of a URL.
class AECONN_API Registry {
 public:
  Registry();
  Registry(Registry&&) noexcept;             ///< takes over the other registry's transports
  Registry& operator=(Registry&&) noexcept;  ///< takes over the other registry's transports
  ~Registry();

  /// Adds a transport, and returns it. Throws Error if the registry already has one of that name.
  ConnectionType& add(std::unique_ptr<Transport> type);
  /// Adds a scheme that this build or machine cannot serve. `reason` says why, as a sentence, for
  /// the error message when the scheme is used.
  void add_unavailable(std::string name, std::string reason);

  /// Returns the transport `name`; null if there is none. A list of schemes, rdma|tcp, has a type
  /// of its own (conn/fallback_type.h), which is created on first use; at least one of its schemes
  /// must be available.
  ConnectionType* find(std::string_view name) const;
  /// Returns the transport like find(). Throws Error instead of returning null; its text lists the
  /// available names, or gives the reason why this one is unavailable.
  ConnectionType& require(std::string_view name) const;
  /// Returns the type that serves the list of schemes `name`, and throws Error like require(); null
  /// if `name` is a single scheme.
  const FallbackType* list(std::string_view name) const;
  /// Returns the transports that add() was called for. The types that represent lists of schemes
  /// are in lists().
  const std::vector<ConnectionType*>& types() const noexcept { return types_; }
  /// Returns the types of the lists of schemes (rdma|tcp) used so far; their statistics include
  /// `fallbacks`. They live as long as the registry. Thread-safe.
  std::vector<const ConnectionType*> lists() const;
  /// Returns all transports: those of types(), followed by those of lists().
  std::vector<const ConnectionType*> types_and_lists() const;
  /// Reads again all files that the TLS transports use, those of their options and those that URLs
  /// of listeners name: call it when certificates have been renewed. The options stay. New
  /// connections use the new files. A transport that cannot use them goes on with the old ones; the
  /// function then throws the first Error, after all transports have been tried. Any thread.
  void reload_tls() const;
  /// Sets a handler that is called when a connection to a list of schemes is established over
  /// another scheme than the first. Set it before connections are made.
  void on_fallback(FallbackHandler handler);

  /// Listens on `endpoint` with the transport that its scheme names; see ConnectionType::listen().
  [[nodiscard]] ListenerPtr listen(ae::EventLoop& loop, const Endpoint& endpoint,
                                   AcceptHandler accepted) const;
  /// Listens on a URL, such as "tcp://*:6379", with the transport that its scheme names.
  [[nodiscard]] ListenerPtr listen(ae::EventLoop& loop, std::string_view url,
                                   AcceptHandler accepted) const;
  /// Creates a connection with the transport that the endpoint's scheme names; see
  /// ConnectionType::create().
  [[nodiscard]] ConnectionPtr create(ae::EventLoop& loop, const Endpoint& endpoint) const;
  /// Creates a connection and connects it to `url`; see Connection::connect().
  [[nodiscard]] ConnectionPtr connect(ae::EventLoop& loop, std::string_view url,
                                      Connection::Handler done) const;

  /// Returns whether any transport has pending data on `loop`; see
  /// ConnectionType::has_pending_data().
  bool has_pending_data(ae::EventLoop& loop) const;
  /// Calls ConnectionType::process_pending_data() of every transport. Returns how many handlers ran
  /// in total.
  std::size_t process_pending_data(ae::EventLoop& loop) const;

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
