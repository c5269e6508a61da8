#include "conn/tcp/socket_type.h"

#include <algorithm>

#include "conn/error.h"
#include "conn/tcp/socket_connection.h"
#include "conn/tcp/socket_listener.h"

namespace conn::tcp {

void SocketType::configure(const Options& options) {
  auto settings = std::make_shared<Settings>(parse(options));  // throws before anything changes
  options_ = options;
  settings_ = std::move(settings);
}

std::shared_ptr<const Settings> SocketType::settings_for(const Options& endpoint) const {
  if (endpoint.empty()) return settings_;
  return std::make_shared<Settings>(parse(options_.merged_with(endpoint)));
}

void SocketType::check(const Endpoint& endpoint) const {
  try {
    if (endpoint.scheme != name()) {
      throw Error("this is not a " + std::string(name()) + " endpoint");
    }
    check_address(endpoint);
    if (!endpoint.options.empty()) (void)parse(endpoint.options);
  } catch (const Error& error) {
    std::string where = endpoint.to_string();
    std::replace(where.begin(), where.end(), '\0', '?');  // or it would end the sentence
    throw Error(where + ": " + error.what());
  }
}

ListenerPtr SocketType::listen(ae::EventLoop& loop, const Endpoint& endpoint,
                               AcceptHandler accepted) const {
  check(endpoint);
  std::shared_ptr<const Settings> settings = settings_for(endpoint.options);
  std::vector<Bound> sockets = bind(endpoint, *settings);
  return std::make_unique<SocketListener>(*this, loop, std::move(settings), std::move(sockets),
                                          std::move(accepted));
}

ConnectionPtr SocketType::create(ae::EventLoop& loop) const {
  return ConnectionPtr(new SocketConnection(*this, loop, settings_));
}

}  // namespace conn::tcp
