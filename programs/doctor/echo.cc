// SPDX-License-Identifier: BSD-3-Clause
#include "programs/doctor/echo.h"

#include <array>
#include <cerrno>

namespace doctor {

std::vector<conn::Endpoint> Echo::listen(const conn::Endpoint& at) {
  listeners_.push_back(registry_.listen(loop_, at, [this](conn::ConnectionPtr peer) {
    Client& client = clients_[peer.get()];
    client.connection = std::move(peer);
    serve(client);
  }));
  return listeners_.back()->endpoints();
}

void Echo::serve(Client& client) {
  conn::Connection& peer = *client.connection;
  std::array<char, 64 * 1024> buffer;
  ssize_t size = -1;
  errno = EAGAIN;
  if (client.unsent.empty() && (size = peer.read(buffer.data(), buffer.size())) > 0)
    client.unsent.assign(buffer.data(), static_cast<std::size_t>(size));
  if (!client.unsent.empty() && (size = peer.write(client.unsent.data(), client.unsent.size())) > 0)
    client.unsent.erase(0, static_cast<std::size_t>(size));
  if (size == 0 || (size < 0 && errno != EAGAIN)) {
    clients_.erase(&peer);
    return;
  }
  const conn::Connection::Handler again = [this, &client](conn::Connection&) { serve(client); };
  const bool all_sent = client.unsent.empty();
  peer.set_read_handler(all_sent ? again : nullptr);
  peer.set_write_handler(all_sent ? nullptr : again);
}

EchoThread::EchoThread(const conn::Registry& registry, const conn::Endpoint& at)
    : echo_(loop_, registry), at_(echo_.listen(at).front()) {
  thread_ = std::thread([this] { loop_.run(); });
}

EchoThread::~EchoThread() {
  loop_.post([this] { loop_.stop(); });
  thread_.join();
}

}  // namespace doctor
