#include "conn/tcp/socket_type.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

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

ConnectionPtr SocketType::adopt(ae::EventLoop& loop, int fd) const {
  const auto refuse = [&](const std::string& why) {
    throw Error("descriptor " + std::to_string(fd) + " cannot be taken over: " + why);
  };
  int kind = 0;
  socklen_t size = sizeof kind;
  SocketAddress peer;
  peer.size = sizeof peer.storage;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &size) != 0 ||
      getpeername(fd, peer.get(), &peer.size) != 0)
    refuse(errno_text(errno));
  if (kind != SOCK_STREAM) refuse("it is not a stream socket");
  if ((peer.family() == AF_UNIX) != (name() == "unix"))
    refuse("it is not a " + std::string(name()) + " socket");
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
      fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
    refuse(errno_text(errno));
  auto* connection = new SocketConnection(*this, loop, settings_);
  ConnectionPtr owner(connection);
  connection->adopt(Fd(fd), peer);
  return owner;
}

ConnectionPtr SocketType::create(ae::EventLoop& loop) const {
  return ConnectionPtr(new SocketConnection(*this, loop, settings_));
}

}  // namespace conn::tcp
