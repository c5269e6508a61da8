#pragma once
// The transports a program has. A plain object that main() fills; there is no global one.

#include <memory>
#include <string_view>
#include <vector>

#include "conn/connection_type.h"

namespace conn {

class Registry {
 public:
  /// Throws Error if the name is taken.
  ConnectionType& add(std::unique_ptr<ConnectionType> type);
  /// A scheme this build or machine cannot serve, and the sentence that says why.
  void add_unavailable(std::string name, std::string reason);

  /// Null if there is none.
  ConnectionType* find(std::string_view name) const noexcept;
  /// Throws Error that lists the names there are, or gives the reason it is unavailable.
  ConnectionType& require(std::string_view name) const;
  const std::vector<std::unique_ptr<ConnectionType>>& types() const noexcept { return types_; }

  // Short forms of require(endpoint.scheme).…
  [[nodiscard]] ListenerPtr listen(ae::EventLoop& loop, const Endpoint& endpoint,
                                   AcceptHandler accepted) const;
  [[nodiscard]] ListenerPtr listen(ae::EventLoop& loop, std::string_view url,
                                   AcceptHandler accepted) const;
  [[nodiscard]] ConnectionPtr create(ae::EventLoop& loop, const Endpoint& endpoint) const;
  /// create() and connect() in one.
  [[nodiscard]] ConnectionPtr connect(ae::EventLoop& loop, std::string_view url,
                                      Connection::Handler done) const;

  bool has_pending_data(ae::EventLoop& loop) const;
  std::size_t process_pending_data(ae::EventLoop& loop) const;

 private:
  std::vector<std::unique_ptr<ConnectionType>> types_;
  std::vector<std::pair<std::string, std::string>> unavailable_;
};

}  // namespace conn
