// SPDX-License-Identifier: BSD-3-Clause
// The same echo server written twice, for comparison: with coroutines and with handlers.
//
//   co-echo [--handlers] URL...

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <memory>
#include <unordered_map>
#include <vector>

#include "ae/libev_loop.h"
#include "conn/co.h"
#include "conn/transports/transports.h"

namespace {

namespace co = conn::co;

constexpr std::size_t kRoom = 16 * 1024;

co::Task<> echo(co::Stream peer) {
  std::array<std::byte, kRoom> buffer;
  while (const co::Result got = co_await peer.read(buffer)) {
    if (!co_await peer.write(std::span(buffer).first(got.size))) co_return;
  }
}

struct Client {
  conn::ConnectionPtr connection;
  std::array<std::byte, kRoom> buffer;
  std::size_t begin = 0, end = 0;  // range of unsent bytes
};

class Handlers {
 public:
  void add(conn::ConnectionPtr peer) {
    Client& client = clients_[peer.get()];
    client.connection = std::move(peer);
    client.connection->set_read_handler([this, &client](conn::Connection&) { read(client); });
  }

 private:
  void read(Client& client) {
    const ssize_t n = client.connection->read(client.buffer.data(), client.buffer.size());
    if (n == 0 || (n < 0 && errno != EAGAIN)) return void(clients_.erase(client.connection.get()));
    if (n < 0) return;
    client.begin = 0;
    client.end = static_cast<std::size_t>(n);
    write(client);
  }
  void write(Client& client) {
    conn::Connection& peer = *client.connection;
    const ssize_t n = peer.write(client.buffer.data() + client.begin, client.end - client.begin);
    if (n < 0 && errno != EAGAIN) return void(clients_.erase(&peer));
    if (n > 0) client.begin += static_cast<std::size_t>(n);
    const bool waits = client.begin != client.end;
    if (waits == peer.has_write_handler()) return;
    if (waits) {
      peer.set_read_handler(nullptr);
      peer.set_write_handler([this, &client](conn::Connection&) { write(client); });
    } else {
      peer.set_write_handler(nullptr);
      peer.set_read_handler([this, &client](conn::Connection&) { read(client); });
    }
  }

  std::unordered_map<conn::Connection*, Client> clients_;
};

}  // namespace

int main(int argc, char** argv) try {
  const conn::Registry registry = conn::all_transports();
  ae::LibevLoop loop;
  Handlers handlers;
  co::Scope scope;
  bool by_handlers = false;
  std::vector<conn::ListenerPtr> listeners;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--handlers") == 0) {
      by_handlers = true;
      continue;
    }
    listeners.push_back(registry.listen(loop, argv[i], [&](conn::ConnectionPtr peer) {
      if (by_handlers) {
        handlers.add(std::move(peer));
      } else {
        scope.spawn(echo(std::move(peer)));
      }
    }));
    for (const conn::Endpoint& at : listeners.back()->endpoints())
      std::cout << "listening on " << at.to_string() << std::endl;
  }
  if (listeners.empty()) {
    std::cerr << "co-echo [--handlers] URL...\n";
    return 2;
  }
  loop.run();
} catch (const std::exception& error) {
  std::cerr << "co-echo: " << error.what() << '\n';
  return 1;
}
