#include "conn/registry.h"

#include "conn/error.h"

namespace conn {

ConnectionType& Registry::add(std::unique_ptr<ConnectionType> type) {
  if (find(type->name()) != nullptr) {
    throw Error("the transport " + std::string(type->name()) + " is already registered");
  }
  // A transport that can be had after all is no longer unavailable.
  std::erase_if(unavailable_, [&](const auto& entry) { return entry.first == type->name(); });
  types_.push_back(std::move(type));
  return *types_.back();
}

void Registry::add_unavailable(std::string name, std::string reason) {
  if (find(name) == nullptr) unavailable_.emplace_back(std::move(name), std::move(reason));
}

ConnectionType* Registry::find(std::string_view name) const noexcept {
  for (const auto& type : types_) {
    if (type->name() == name) return type.get();
  }
  return nullptr;
}

ConnectionType& Registry::require(std::string_view name) const {
  if (ConnectionType* type = find(name)) return *type;
  for (const auto& [unavailable, reason] : unavailable_) {
    if (unavailable == name) throw Error(std::string(name).append(" is not available: ") + reason);
  }
  std::string known;
  for (const auto& type : types_) {
    if (!known.empty()) known += ", ";
    known += type->name();
  }
  throw Error("there is no transport " + std::string(name) + "; there " +
              (known.empty()        ? "is none"
               : types_.size() == 1 ? "is " + known
                                    : "are " + known));
}

ListenerPtr Registry::listen(ae::EventLoop& loop, const Endpoint& endpoint,
                             AcceptHandler accepted) const {
  return require(endpoint.scheme).listen(loop, endpoint, std::move(accepted));
}

ListenerPtr Registry::listen(ae::EventLoop& loop, std::string_view url,
                             AcceptHandler accepted) const {
  return listen(loop, Endpoint::parse(url), std::move(accepted));
}

ConnectionPtr Registry::create(ae::EventLoop& loop, const Endpoint& endpoint) const {
  return require(endpoint.scheme).create(loop);
}

ConnectionPtr Registry::connect(ae::EventLoop& loop, std::string_view url,
                                Connection::Handler done) const {
  const Endpoint endpoint = Endpoint::parse(url);
  const ConnectionType& type = require(endpoint.scheme);
  type.check(endpoint);
  ConnectionPtr connection = type.create(loop);
  connection->connect(endpoint, std::move(done));
  return connection;
}

bool Registry::has_pending_data(ae::EventLoop& loop) const {
  for (const auto& type : types_) {
    if (type->has_pending_data(loop)) return true;
  }
  return false;
}

std::size_t Registry::process_pending_data(ae::EventLoop& loop) const {
  std::size_t done = 0;
  for (const auto& type : types_) done += type->process_pending_data(loop);
  return done;
}

}  // namespace conn
